// Errors of the library. The types are API; the texts say what, why and how to fix.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace megatron {

/// Base of every exception that the library throws.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text) : std::runtime_error(text) {}
  ~Error() override;
};

/// A flag, field or combination of them is wrong. The text lists all mistakes that were found.
class ConfigError : public Error {
 public:
  using Error::Error;
};
/// A tensor has the wrong shape for what is asked of it.
class ShapeError : public Error {
 public:
  using Error::Error;
};
/// A tensor has the wrong dtype for what is asked of it.
class DtypeError : public Error {
 public:
  using Error::Error;
};
/// The device refused or failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// An arena is full. The text carries the memory table and the remedies.
class OutOfMemory : public DeviceError {
 public:
  using DeviceError::DeviceError;
};
/// A collective failed, timed out or was aborted.
class CommError : public Error {
 public:
  using Error::Error;
};
/// A checkpoint cannot be written, is damaged, or does not fit.
class CheckpointError : public Error {
 public:
  using Error::Error;
};
/// A data file is missing, damaged or does not fit.
class DataError : public Error {
 public:
  using Error::Error;
};
/// The operating system refused a file operation.
class IoError : public Error {
 public:
  using Error::Error;
};
/// The request is valid but this build, device or version cannot do it; the text names the limit.
class NotSupported : public Error {
 public:
  using Error::Error;
};
/// One of our own invariants broke.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// Throws `E` with the formatted text: the part of `require` that its many callers share.
template <class E>
[[noreturn, gnu::noinline]] void throw_error(fmt::string_view format, fmt::format_args args) {
  throw E(fmt::vformat(format, args));
}

/// Throws `E` with the formatted text unless `condition` holds.
template <class E = InternalError, class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw_error<E>(format, fmt::make_format_args(args...));
}

}  // namespace megatron
