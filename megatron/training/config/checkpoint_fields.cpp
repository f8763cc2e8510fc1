// Checkpoints.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

constexpr double kMostWorkers = 1024;
constexpr const char* kThread = "a thread of each rank writes; it needs no worker process and no shared memory";
constexpr const char* kNoPlan =
    "each rank derives its plan from the layout alone, so there is no gathered plan to keep";
constexpr const char* kReplicas = "without experts both are the data-parallel group";

/// Describes the flags of Megatron that have no effect.
void describe_idle(FieldTable& table, CheckpointConfig& checkpoint) {
  table.add("use_persistent_ckpt_worker", checkpoint.use_persistent_ckpt_worker, "").without_effect(kThread);
  table.add("async_strategy", checkpoint.async_strategy, "").one_of({"nvrx", "mcore"}).without_effect(kThread);
  table.add("async_ckpt_use_cpu_shm", checkpoint.async_ckpt_use_cpu_shm, "").without_effect(kThread);
  table.add("auto_detect_ckpt_format", checkpoint.auto_detect_ckpt_format, "")
      .without_effect("the form of a checkpoint is always recognised by its files");
  table.add("ckpt_assume_constant_structure", checkpoint.ckpt_assume_constant_structure, "").without_effect(kNoPlan);
  table.add("ckpt_fully_parallel_save_process_group", checkpoint.ckpt_fully_parallel_save_process_group, "")
      .one_of({"dp", "ep_dp"})
      .without_effect(kReplicas);
  table.add("ckpt_fully_parallel_load_process_group", checkpoint.ckpt_fully_parallel_load_process_group, "")
      .one_of({"dp", "ep_dp"})
      .without_effect(kReplicas);
  table.add("ckpt_fully_parallel_load_exchange_algo", checkpoint.ckpt_fully_parallel_load_exchange_algo, "")
      .one_of({"broadcast", "gather_rounds", "gather_object"})
      .without_effect("what --ckpt-fully-parallel-load has read is always broadcast");
  table.add("ckpt_load_validate_sharding_integrity", checkpoint.ckpt_load_validate_sharding_integrity, "")
      .turned_off_by({"--no-ckpt-load-validate-sharding-integrity", "--disable-ckpt-load-validate-sharding-integrity"})
      .without_effect("the check looks at the index alone, which is read anyway, so it always takes place");
  table.add("dist_ckpt_save_pre_mcore_014", checkpoint.dist_ckpt_save_pre_mcore_014, "")
      .without_effect("Megatron accepts it without effect too");
}

/// Describes the flags of local checkpoints.
void describe_local(FieldTable& table, PretrainConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  const std::string local =
      "--save run --save-interval 500 --non-persistent-ckpt-type local --non-persistent-save-interval 50 "
      "--non-persistent-local-ckpt-dir node";
  const auto is_local = [&config] { return config.checkpoint.is_local(); };
  const auto replicates = [&config] { return config.checkpoint.is_local() && config.checkpoint.replication; };
  table
      .add("non_persistent_local_ckpt_dir", checkpoint.non_persistent_local_ckpt_dir,
           "folder of --non-persistent-ckpt-type local, on a disk of each node; one for each run")
      .differs_between_hosts()
      .needs("--non-persistent-ckpt-type local", is_local)
      .such_as(local);
  table
      .add("non_persistent_local_ckpt_algo", checkpoint.non_persistent_local_ckpt_algo,
           "fully_parallel: each tensor that data-parallel ranks replicate is stored by one of them, which broadcasts "
           "it "
           "on loading; atomic: every rank stores its whole state")
      .one_of({"fully_parallel", "atomic"})
      .needs("--non-persistent-ckpt-type local", is_local)
      .such_as(local + " --non-persistent-local-ckpt-algo atomic");
  table
      .add("replication", checkpoint.replication,
           "let ranks keep copies of each other's local checkpoints, so that a run survives the loss of a node's disk; "
           "needs --replication-jump")
      .needs("--non-persistent-ckpt-type local", is_local)
      .such_as(local + " --replication --replication-jump 1 --nproc-per-node 2");
  table
      .add("replication_jump", checkpoint.replication_jump,
           "distance between the ranks that keep copies of each other's checkpoints; with the number of ranks of a "
           "node, "
           "the copies are on other nodes")
      .at_least(1)
      .needs("--replication", replicates)
      .such_as(local + " --replication --replication-jump 1 --nproc-per-node 2");
  table
      .add("replication_factor", checkpoint.replication_factor,
           "number of copies of each rank's checkpoint, with its own")
      .at_least(2)
      .needs("--replication", replicates)
      .such_as(local + " --replication --replication-jump 1 --replication-factor 4 --nproc-per-node 4");
}

void describe_form(FieldTable& table, PretrainConfig& config) {
  const auto is_torch_and = [&config](auto condition) {
    return [&config, condition] { return config.checkpoint.ckpt_format == "torch" && condition(config); };
  };
  table
      .add("ckpt_format", config.checkpoint.ckpt_format,
           "form of --save: torch_dist, or Megatron-LM's older torch, a folder for each rank of the model")
      .one_of({"torch_dist", "torch"})
      .later({"torch_dcp", "fsdp_dtensor"})
      .cannot_run_where(
          is_torch_and([](const PretrainConfig& run) { return run.checkpoint.async_save; }),
          "--ckpt-format torch with --async-save: its files are made of those of all ranks. Leave out one")
      .cannot_run_where(
          is_torch_and([](const PretrainConfig& run) { return run.checkpoint.verify_integrity; }),
          "--ckpt-format torch with --verify-integrity: integrity.json covers torch_dist alone. Leave out one")
      .cannot_run_where(is_torch_and([](const PretrainConfig& run) {
                          return run.checkpoint.dist_ckpt_optim_form == "dp_reshardable";
                        }),
                        "--ckpt-format torch with --dist-ckpt-optim-form dp_reshardable: distrib_optim.pt has a form "
                        "of its own. Leave "
                        "out one")
      .cannot_run_where(is_torch_and([](const PretrainConfig& run) {
                          return run.transformer.mtp.num_layers > 0 && run.parallel.has_stages();
                        }),
                        "--ckpt-format torch with --mtp-num-layers and --pipeline-model-parallel-size above 1: where "
                        "Megatron places these layers is not known here. Save torch_dist")
      .cannot_run_where(is_torch_and([](const PretrainConfig& run) {
                          const ParallelConfig& parallel = run.parallel;
                          return run.experts.num_experts && parallel.expert_tensor_parallel_size &&
                                 *parallel.expert_tensor_parallel_size != parallel.tensor_model_parallel_size;
                        }),
                        "--ckpt-format torch with another --expert-tensor-parallel-size than "
                        "--tensor-model-parallel-size: its folders have one number for both. Save torch_dist")
      .cannot_run_where(is_torch_and([](const PretrainConfig& run) {
                          return run.parallel.pipeline_schedule &&
                                 traits_of(*run.parallel.pipeline_schedule).stage_order == StageOrder::kV;
                        }),
                        "--ckpt-format torch with a --pipeline-schedule whose stages form a V: Megatron's files hold "
                        "virtual stages in the order of interleaved ones. Save torch_dist")
      .cannot_run_where(
          is_torch_and([](const PretrainConfig& run) {
            return run.optimizer.decoupled_lr && !run.optimizer.use_distributed_optimizer;
          }),
          "--ckpt-format torch with --decoupled-lr needs --use-distributed-optimizer: otherwise its states "
          "are numbered by groups that overlap")
      .such_as("--save run --save-interval 500 --ckpt-format torch");
}

}  // namespace

void describe_checkpoint(FieldTable& table, PretrainConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  table
      .begin_group("Checkpoints",
                   "--save run --load run --save-interval 500 goes on where a run stopped, bit for bit. Files are "
                   "PyTorch's distributed checkpoints, in the form of Megatron-LM 0.19.")
      .for_whole_runs();
  table.add("save", checkpoint.save, "folder to write to; needs --save-interval")
      .known_as("save-dir save-path out-dir output-dir output checkpoint checkpoint-dir ckpt-dir")
      .such_as("--save run --save-interval 500");
  table.add("save_interval", checkpoint.save_interval, "steps between checkpoints")
      .named({"--save-interval", "--persistent-save-interval"})
      .at_least(1)
      .needs("--save", [&config] { return config.checkpoint.saves(); })
      .known_as("save-steps save-every save-freq checkpoint-interval checkpoint-every")
      .such_as("--save run --save-interval 500");
  table
      .add("non_persistent_save_interval", checkpoint.non_persistent_save_interval,
           "steps between checkpoints of which the newest alone is kept; needs --non-persistent-ckpt-type")
      .at_least(1)
      .needs("--save", [&config] { return config.checkpoint.saves(); })
      .such_as("--save run --save-interval 500 --non-persistent-ckpt-type global --non-persistent-save-interval 50");
  table
      .add(
          "non_persistent_ckpt_type", checkpoint.non_persistent_ckpt_type,
          "global: they are like the others, in a folder of their own; local: each rank stores its own state on a disk "
          "of its node, which only the same layout can load. --load takes the newest of all")
      .one_of({"global", "local"})
      .later({"in_memory"})
      .differs({.megatron =
                    "local: resumes from the folder whatever run wrote it, saves asynchronously with --async-save, "
                    "and ignores newer global checkpoints",
                .ours = "local: resumes only the run of --load, always saves synchronously, and the newest of local, "
                        "global and persistent checkpoints is loaded; --phase-transition-iterations is rejected",
                .in_force = [&config] { return config.checkpoint.is_local(); }})
      .such_as("--save run --save-interval 500 --non-persistent-ckpt-type global --non-persistent-save-interval 50");
  table.add("non_persistent_global_ckpt_dir", checkpoint.non_persistent_global_ckpt_dir, "that folder")
      .by_default("non_persistent in those of --save and --load")
      .needs("--non-persistent-ckpt-type", [&config] { return config.checkpoint.non_persistent_ckpt_type.has_value(); })
      .such_as(
          "--save run --save-interval 500 --non-persistent-ckpt-type global --non-persistent-save-interval 50 "
          "--non-persistent-global-ckpt-dir newest");
  describe_local(table, config);
  table
      .add("save_retain_interval", checkpoint.save_retain_interval,
           "keep only checkpoints of steps divisible by it, and the last; a multiple of --save-interval")
      .at_least(1)
      .needs("--save", [&config] { return config.checkpoint.saves(); })
      .such_as("--save run --save-interval 500 --save-retain-interval 1000");
  table.add("no_save_optim", checkpoint.no_save_optim, "write no optimizer state")
      .needs("--save", [&config] { return config.checkpoint.saves(); })
      .such_as("--save run --save-interval 500 --no-save-optim");
  table.add("no_save_rng", checkpoint.no_save_rng, "write no states of generators, which Megatron-LM alone reads")
      .needs("--save", [&config] { return config.checkpoint.saves(); })
      .such_as("--save run --save-interval 500 --no-save-rng");
  table
      .add("ckpt_drop_redundant_extra_state", checkpoint.ckpt_drop_redundant_extra_state,
           "write no empty extra states of modules, which Megatron-LM with Transformer Engine asks for unless it is "
           "given this flag too")
      .needs("--save", [&config] { return config.checkpoint.saves(); })
      .such_as("--save run --save-interval 500 --ckpt-drop-redundant-extra-state");
  table
      .add("dist_ckpt_optim_fully_reshardable", checkpoint.dist_ckpt_optim_fully_reshardable,
           "with --use-distributed-optimizer: write the optimizer's state as whole tensors, which any layout loads; "
           "the default here")
      .needs("--use-distributed-optimizer and --save",
             [&config] { return config.optimizer.use_distributed_optimizer && config.checkpoint.saves(); })
      .such_as("--use-distributed-optimizer --save run --save-interval 500 --dist-ckpt-optim-fully-reshardable");
  table
      .add("distrib_optim_fully_reshardable_mem_efficient", checkpoint.distrib_optim_fully_reshardable_mem_efficient,
           "let Megatron-LM gather that state on one rank when it saves again; nothing is gathered here")
      .needs("--dist-ckpt-optim-fully-reshardable and --save",
             [&config] { return config.checkpoint.dist_ckpt_optim_fully_reshardable && config.checkpoint.saves(); })
      .such_as(
          "--use-distributed-optimizer --save run --save-interval 500 --dist-ckpt-optim-fully-reshardable "
          "--distrib-optim-fully-reshardable-mem-efficient");
  table
      .add("dist_ckpt_optim_form", checkpoint.dist_ckpt_optim_form,
           "form of a distributed optimizer's state: whole tensors, or (dp_reshardable) the flat buckets that "
           "Megatron-LM "
           "writes by default and loads on equal tensor and pipeline sizes only; any layout here loads both")
      .one_of({"fully_reshardable", "dp_reshardable"})
      .needs("--use-distributed-optimizer and --save",
             [&config] { return config.optimizer.use_distributed_optimizer && config.checkpoint.saves(); })
      .cannot_run_where(
          [&config] {
            return config.checkpoint.dist_ckpt_optim_form == "dp_reshardable" &&
                   config.checkpoint.dist_ckpt_optim_fully_reshardable;
          },
          "--dist-ckpt-optim-form dp_reshardable with --dist-ckpt-optim-fully-reshardable: they ask for different "
          "forms. "
          "Leave out one of them")
      .cannot_run_where(
          [&config] {
            return config.checkpoint.dist_ckpt_optim_form == "dp_reshardable" &&
                   config.transformer.mtp.num_layers > 0 && config.parallel.has_stages();
          },
          "--dist-ckpt-optim-form dp_reshardable with --mtp-num-layers and --pipeline-model-parallel-size above 1: "
          "where "
          "Megatron places these layers is not known here. Leave out --dist-ckpt-optim-form")
      .such_as("--use-distributed-optimizer --save run --save-interval 500 --dist-ckpt-optim-form dp_reshardable");
  table.add(
      "take_over_save_lock", checkpoint.take_over_save_lock,
      "write to the folder of --save although a run on another host, in another container or before the last boot "
      "has left its lock there; that run must have ended");
  table.add_on("save_tokenizer_assets", checkpoint.save_tokenizer_assets,
               "do not put the tokenizer's files into checkpoints");
  table.add("load", checkpoint.load, "folder to read from")
      .known_as(
          "resume resume-from resume-from-checkpoint restore load-dir load-path load-checkpoint from-checkpoint "
          "model-path checkpoint-path ckpt ckpt-path");
  table.add("pretrained_checkpoint", checkpoint.pretrained_checkpoint, "folder to start from if --load holds none");
  table
      .add("load_hf", checkpoint.load_hf,
           "folder of a model in Hugging Face's format to start from if --load holds none (megatron.cpp only): its "
           "config.json gives the flags of the model, and its tokenizer is taken unless --tokenizer-type is given")
      .known_as("hf-path hf-model load-hugging-face")
      .such_as("--load-hf Llama-3.2-1B");
  table.add("ckpt_step", checkpoint.ckpt_step, "which step to load")
      .by_default("the last")
      .at_least(0)
      .such_as("--load run --ckpt-step 100");
  table
      .add("override_ckpt_iteration", checkpoint.override_ckpt_iteration,
           "count on from this step instead of the stored one")
      .at_least(0)
      .needs("--load", [&config] { return config.checkpoint.loads(); })
      .such_as("--load run --override-ckpt-iteration 100");
  table.add("no_load_optim", checkpoint.no_load_optim, "read no optimizer state")
      .needs("--load", [&config] { return config.checkpoint.loads(); })
      .such_as("--load run --no-load-optim");
  table
      .add("load_main_params_from_ckpt", checkpoint.load_main_params_from_ckpt,
           "with --no-load-optim: start main parameters from the highest precision that the checkpoint has")
      .needs("--load or --pretrained-checkpoint", [&config] { return config.checkpoint.loads(); })
      .differs({.megatron = "needs the distributed optimizer, and takes the model's tensors as they are stored",
                .ours = "works with each optimizer, and takes main parameters in fp32 where the checkpoint has them",
                .in_force = [&config] { return config.checkpoint.load_main_params_from_ckpt; }})
      .such_as("--load run --no-load-optim --load-main-params-from-ckpt");
  table.add("finetune", checkpoint.finetune, "read weights only and start at step 0")
      .needs("--load", [&config] { return config.checkpoint.loads(); })
      .such_as("--load run --finetune");
  table.add("allow_other_tokenizer", checkpoint.allow_other_tokenizer,
            "resume although the checkpoint was trained with another tokenizer or vocabulary");
  table.add("use_checkpoint_args", checkpoint.use_checkpoint_args, "take the model's size and kind from the checkpoint")
      .differs({.megatron =
                    "leaves windows, softmax type, norms of queries and keys and others as the command line has them",
                .ours = "takes everything that says what the weights mean"})
      .such_as("--load run --use-checkpoint-args");
  table.add("exit_on_missing_checkpoint", checkpoint.exit_on_missing_checkpoint, "fail if --load holds no checkpoint")
      .such_as("--load run --exit-on-missing-checkpoint");
  describe_form(table, config);
  table
      .add("async_save", checkpoint.async_save,
           "copy what a rank stores to host memory, which must have room for it, and write it while training goes on; "
           "at most one save is pending")
      .needs("--save", [&config] { return config.checkpoint.saves(); })
      .differs({.megatron = "saves synchronously without --use-persistent-ckpt-worker, with a warning",
                .ours = "needs no other flag: a thread of each rank writes",
                .in_force = [&config] { return config.checkpoint.saves() && config.checkpoint.async_save; }})
      .such_as("--save run --save-interval 500 --async-save");
  table
      .add("async_ckpt_cpu_priority", checkpoint.async_ckpt_cpu_priority,
           "niceness of the threads that write for --async-save")
      .at_least(-20)
      .at_most(19)
      .needs("--async-save", [&config] { return config.checkpoint.saves() && config.checkpoint.async_save; })
      .such_as("--save run --save-interval 500 --async-save --async-ckpt-cpu-priority 5");
  table
      .add("async_ckpt_io_priority", checkpoint.async_ckpt_io_priority,
           "their I/O class. 0: none; 1: real time; 2: best effort; 3: idle")
      .at_least(0)
      .at_most(3)
      .needs("--async-save", [&config] { return config.checkpoint.saves() && config.checkpoint.async_save; })
      .such_as("--save run --save-interval 500 --async-save --async-ckpt-io-priority 2");
  table
      .add("dist_ckpt_workers", checkpoint.dist_ckpt_workers,
           "files that each rank writes; with --async-save by as many threads")
      .at_least(1)
      .at_most(kMostWorkers)
      .needs("--save", [&config] { return config.checkpoint.saves(); })
      .such_as("--save run --save-interval 500 --dist-ckpt-workers 4");
  table
      .add("verify_integrity", checkpoint.verify_integrity,
           "on saving store SHA-256 hashes of all files (integrity.json), on loading compare them first")
      .needs("--save or --load", [&config] { return config.checkpoint.saves() || config.checkpoint.loads(); })
      .such_as("--save run --save-interval 500 --verify-integrity");
  table
      .add_on("ckpt_fully_parallel_save", checkpoint.ckpt_fully_parallel_save,
              "the first of the data-parallel ranks alone writes what all of them hold alike")
      .turned_off_by({"--no-ckpt-fully-parallel-save"})
      .needs("--save and more than one data-parallel rank",
             [&config] { return config.checkpoint.saves() && config.parallel.has_replicas(); })
      .such_as("--save run --save-interval 500 --no-ckpt-fully-parallel-save");
  table
      .add("ckpt_fully_parallel_load", checkpoint.ckpt_fully_parallel_load,
           "read what all data-parallel ranks hold alike once, each rank a part, and broadcast it among them")
      .needs("--load and more than one data-parallel rank",
             [&config] { return config.checkpoint.loads() && config.parallel.has_replicas(); })
      .such_as("--load run --ckpt-fully-parallel-load");
  table
      .add("dist_ckpt_strictness", checkpoint.dist_ckpt_strictness,
           "what to do where the tensors of the checkpoint are not those of the run. A tensor is unexpected if the "
           "run has it and the checkpoint does not, missing if it is the other way round. assume_ok_unexpected: the "
           "first unexpected one is an error. log_*: warn, and leave unexpected ones at their initial values. "
           "raise_*: an error that lists them. *_all: missing ones too. return_*: as log_*. ignore_all: no warning")
      .needs("--load", [&config] { return config.checkpoint.loads(); })
      .such_as("--load run --dist-ckpt-strictness log_all");
  describe_idle(table, checkpoint);
}

}  // namespace megatron
