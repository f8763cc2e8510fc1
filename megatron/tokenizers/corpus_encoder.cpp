#include "megatron/tokenizers/corpus_encoder.h"

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/thread_name.h"
#include "megatron/base/thread_start.h"

namespace megatron {
namespace {
/// Threads that encode batches. The destructor drops what has not begun and waits for the rest.
class Workers {
 public:
  Workers(const Tokenizer& tokenizer, const DocumentEncoding& encoding, int64_t num_workers) {
    for (int64_t i = 0; i < num_workers; ++i)
      threads_.push_back(
          start_thread("to tokenize", [this, encoder = std::make_unique<DocumentEncoder>(tokenizer, encoding)](
                                          const std::stop_token& stop) { run(stop, *encoder); }));
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

  std::future<EncodedBatch> submit(RawBatch batch) {
    Task task([batch = std::move(batch)](DocumentEncoder& encoder) { return encoder.encode(batch); });
    std::future<EncodedBatch> result = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return result;
  }

 private:
  using Task = std::packaged_task<EncodedBatch(DocumentEncoder&)>;

  void run(const std::stop_token& stop, DocumentEncoder& encoder) {
    set_thread_name("tokenizer");
    while (true) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, stop, [&] { return !tasks_.empty(); });
        if (stop.stop_requested()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task(encoder);
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Task> tasks_;
  std::vector<std::jthread> threads_;
};
}  // namespace

void encode_corpus(DocumentSource& source, const Tokenizer& tokenizer, const DocumentEncoding& encoding,
                   int64_t num_workers, const std::function<void(const EncodedBatch&)>& sink) {
  require<ConfigError>(num_workers >= 1, "--workers is {}; at least one is needed", num_workers);
  Workers workers(tokenizer, encoding, num_workers);
  std::deque<std::future<EncodedBatch>> results;
  const auto deliver_first = [&] {
    sink(results.front().get());
    results.pop_front();
  };
  while (std::optional<RawBatch> batch = source.next()) {
    results.push_back(workers.submit(std::move(*batch)));
    // One batch per worker in work and one waiting keep all of them busy while the sink is.
    if (std::ssize(results) > 2 * num_workers) deliver_first();
  }
  while (!results.empty()) deliver_first();
}

}  // namespace megatron
