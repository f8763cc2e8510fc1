// The work of each action of `megatron checkpoint`.
#pragma once

#include <iosfwd>
#include <string>

#include "commands/checkpoint/checkpoint_flags.h"
#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/training/checkpoint/target_layout.h"

namespace megatron {

/// Opens the checkpoint that `folder` is or holds. @param step  --ckpt-step. @param err  receives warnings.
/// @throw CheckpointError if there is none, or its index is damaged.
CheckpointReader open_checkpoint(FileSystem& files, const std::string& folder, const std::optional<int64_t>& step,
                                 std::ostream& err);

/// Prints what a checkpoint holds.
void inspect_checkpoint(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err);
/// Reads all of a checkpoint. @throw CheckpointError listing what is damaged, after the report.
void verify_checkpoint(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err);
/// Prints how the tensors of two checkpoints differ. @return whether they do.
bool diff_checkpoints(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err);
/// Writes a checkpoint in another form.
void convert_checkpoint(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err);
/// The target sizes among the flags.
LayoutRequest layout_request_of(const CheckpointFlags& flags);
/// Writes a checkpoint as the ranks of another layout would have.
void reshard_checkpoint_command(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err);
/// Deletes checkpoints, or lists those that it would delete.
void prune_checkpoints(FileSystem& files, const CheckpointFlags& flags, std::ostream& out);

}  // namespace megatron
