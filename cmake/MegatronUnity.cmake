# MEGATRON_UNITY: compiles eight sources of a target together, so that headers are read once for all of them. A whole build takes
# half as long; after a change of one source, eight are compiled again. scripts/demo.sh and scripts/test.sh turn it on in the
# build folders that they make.
#
#   megatron_compile_together(TARGET SOURCES...)   for a target of the current folder
option(MEGATRON_UNITY "Compile several sources together: a whole build takes half as long, a change of one source longer" OFF)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8 CACHE STRING "Sources that MEGATRON_UNITY compiles together; 0: all of a target")

# Sources that define the same names in their anonymous namespaces as others of their target. The compiler names a missing one
# ("redefinition"); with -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 it names all.
set(MEGATRON_COMPILED_ALONE
    commands/bench/bench_comm.cpp
    commands/bench/bench_step.cpp
    commands/bench/bench_tune.cpp
    commands/bridge.cpp
    commands/eval.cpp
    commands/generate.cpp
    commands/launch/process_starter.cpp
    commands/plan_config.cpp
    commands/plot_losses.cpp
    commands/preprocess_data.cpp
    commands/preprocess_data_config.cpp
    commands/tokenize.cpp
    commands/verify.cpp
    commands/verify_config.cpp
    megatron/bench/attention_cases.cpp
    megatron/comm/mpi/mpi_world.cpp
    megatron/comm/nccl/graph_steps.cpp
    megatron/comm/nccl/nccl_library.cpp
    megatron/comm/nccl/store_meeting.cpp
    megatron/comm/rendezvous/store_client.cpp
    megatron/comm/threads/meeting.cpp
    megatron/comm/threads/rank_threads.cpp
    megatron/comm/threads/thread_group.cpp
    megatron/comm/threads/thread_world.cpp
    megatron/ops/weighted_rows.cpp
    megatron/optimizer/param_scheduler_entries.cpp
    megatron/telemetry/gpu_process_memory.cpp
    megatron/telemetry/straggler_report.cpp
    megatron/tokenizers/character_masks.cpp
    megatron/tokenizers/chat_template/tests_of_values.cpp
    megatron/tokenizers/punkt_words.cpp
    megatron/tokenizers/sentence_splitter.cpp
    megatron/tokenizers/hugging_face/decoders.cpp
    megatron/tokenizers/tiktoken_encoding.cpp
    megatron/tokenizers/word_scanner.cpp
    megatron/training/checkpoint/checkpoint_load.cpp
    megatron/training/checkpoint/snapshot.cpp
    megatron/training/config/arguments_json.cpp
    megatron/training/config/training_fields.cpp
    megatron/training/hugging_face/export_model.cpp
    megatron/training/hugging_face/hugging_face_model.cpp
    megatron/training/hugging_face/hugging_face_weights.cpp
    megatron/training/hugging_face/import_model.cpp
    megatron/training/planning/memory_plan.cpp
    megatron/training/rejected_steps.cpp
    megatron/training/rerun_state_machine.cpp
    megatron/training/startup/matmul_choices_file.cpp
    megatron/training/startup/same_settings.cpp
    megatron/training/training_reporter.cpp
    megatron/training/weight_hash.cpp
    tests/autograd/recompute_test.cpp
    tests/comm/nccl/store_meeting_test.cpp
    tests/comm/rendezvous/store_test.cpp
    tests/comm/threads/rank_threads_test.cpp
    tests/commands/bad_checkpoints_test.cpp
    tests/commands/bad_files_test.cpp
    tests/commands/bad_outputs_test.cpp
    tests/commands/fault_run_test.cpp
    tests/commands/launch/nccl_variables_test.cpp
    tests/commands/ranks_test.cpp
    tests/commands/tokenize_test.cpp
    tests/commands/training_run_test.cpp
    tests/datasets/gpt_index_test.cpp
    tests/dist_checkpointing/torch_file_test.cpp
    tests/models/gpt/mtp_golden_test.cpp
    tests/optimizer/param_scheduler_test.cpp
    tests/parallel/checkpoint_test.cpp
    tests/pipeline_parallel/schedule_run.cpp
    tests/telemetry/run_messages_test.cpp
    tests/tokenizers/corpus_encoder_test.cpp
    tests/tokenizers/sentence_piece_golden_test.cpp
    tests/tokenizers/simple_tokenizers_test.cpp
    tests/tokenizers/tiktoken_golden_test.cpp
    tests/tokenizers/vocabulary_tokenizers_test.cpp
    tests/training/trainer_test.cpp
    tests/transformer/moe/expert_parallel_test.cpp)

function(megatron_compile_together target)
  if(NOT MEGATRON_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(source IN LISTS ARGN)
    if("${folder}/${source}" IN_LIST MEGATRON_COMPILED_ALONE)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
