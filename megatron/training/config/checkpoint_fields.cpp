// Checkpoints.
#include "megatron/training/config/fields.h"

namespace megatron {

void describe_checkpoint(FieldTable& table, PretrainConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  table.begin_group("Checkpoints",
                    "--save run --load run --save-interval 500 goes on where a run stopped, bit for bit. Files are "
                    "PyTorch's distributed checkpoints, in the form of Megatron-LM 0.19.");
  table.add("save", checkpoint.save, "folder to write to; needs --save-interval");
  table.add("save_interval", checkpoint.save_interval, "steps between checkpoints")
      .named({"--save-interval", "--persistent-save-interval"})
      .at_least(1);
  table
      .add("save_retain_interval", checkpoint.save_retain_interval,
           "keep only checkpoints of steps divisible by it, and the last; a multiple of --save-interval")
      .at_least(1);
  table.add("no_save_optim", checkpoint.no_save_optim, "write no optimizer state");
  table.add(
      "take_over_save_lock", checkpoint.take_over_save_lock,
      "write to the folder of --save although a run on another host, in another container or before the last boot "
      "has left its lock there; that run must have ended");
  table.add_on("save_tokenizer_assets", checkpoint.save_tokenizer_assets,
               "do not put the tokenizer's files into checkpoints");
  table.add("load", checkpoint.load, "folder to read from");
  table.add("pretrained_checkpoint", checkpoint.pretrained_checkpoint, "folder to start from if --load holds none");
  table.add("ckpt_step", checkpoint.ckpt_step, "which step to load; none: the last").at_least(0);
  table
      .add("override_ckpt_iteration", checkpoint.override_ckpt_iteration,
           "count on from this step instead of the stored one")
      .at_least(0);
  table.add("no_load_optim", checkpoint.no_load_optim, "read no optimizer state");
  table.add("finetune", checkpoint.finetune, "read weights only and start at step 0");
  table.add("allow_other_tokenizer", checkpoint.allow_other_tokenizer,
            "resume although the checkpoint was trained with another tokenizer or vocabulary");
  table.add("use_checkpoint_args", checkpoint.use_checkpoint_args,
            "take the model's size and kind from the checkpoint");
  table.add("exit_on_missing_checkpoint", checkpoint.exit_on_missing_checkpoint, "fail if --load holds no checkpoint");
  table.add("ckpt_format", checkpoint.ckpt_format, "form on disk")
      .one_of({"torch_dist"})
      .later({"torch", "torch_dcp", "fsdp_dtensor"});
}

}  // namespace megatron
