#include <megatron/core/timers.h>
