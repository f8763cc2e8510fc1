#include "megatron/comm/work.h"

namespace megatron {

void Work::wait() {
  if (pending_) pending_->wait();
  pending_.reset();
  keep_alive_.release();
}

void Work::block() {
  if (pending_) pending_->block();
  pending_.reset();
  keep_alive_.release();
}

}  // namespace megatron
