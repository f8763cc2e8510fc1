# MEGATRON_UNITY: compiles sixteen sources of a target together, so that headers are read once for all of them. A whole build takes
# half as long; after a change of one source, sixteen are compiled again. scripts/demo.sh and scripts/test.sh turn it on in the
# build folders that they make.
#
#   megatron_compile_together(TARGET SOURCES...)   for a target of the current folder
option(MEGATRON_UNITY "Compile several sources together: a whole build takes half as long, a change of one source longer" OFF)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16 CACHE STRING "Sources that MEGATRON_UNITY compiles together; 0: all of a target")

# Sources that define the same names in their anonymous namespaces as others of their target. The compiler names a missing one
# ("redefinition"); with -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 it names all.
set(MEGATRON_COMPILED_ALONE
    commands/build_sequences_per_dataset.cpp
    megatron/tokenizers/character_masks.cpp
    megatron/tokenizers/hugging_face/decoders.cpp
    megatron/tokenizers/punkt_words.cpp
    megatron/tokenizers/sentence_splitter.cpp
    megatron/tokenizers/hugging_face/crate_characters.cpp
    megatron/tokenizers/tiktoken_encoding.cpp
    megatron/tokenizers/word_scanner.cpp
    megatron/training/checkpoint/convert_checkpoint.cpp
    megatron/training/checkpoint/legacy_writer.cpp
    megatron/training/hugging_face/export_model.cpp
    megatron/training/hugging_face/hugging_face_model.cpp
    megatron/training/hugging_face/hugging_face_weights.cpp
    megatron/training/hugging_face/import_model.cpp
    tests/tokenizers/vocabulary_tokenizers_test.cpp)

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
