#include "megatron/base/error.h"

namespace megatron {

Error::~Error() = default;  // anchors the vtable in one file

}  // namespace megatron
