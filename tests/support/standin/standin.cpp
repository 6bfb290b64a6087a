// A device of torch that lives in the host's memory and keeps the rules of a GPU.
//
// - Operators refuse tensors of the host beside tensors of the device, except single numbers.
// - gloo cannot send its tensors, as it cannot send those of any device but CPU and CUDA.
// - A copy into pinned memory with non_blocking=True arrives late: until the device is synchronized, the
//   memory holds NaN. Kernels run at once; the host cannot tell, as it sees results only through copies.
// - Random numbers come from a generator of its own.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

namespace {

using at::Tensor;
using Clock = std::chrono::steady_clock;
constexpr auto kDevice = c10::DeviceType::PrivateUse1;
constexpr auto kLate = std::chrono::milliseconds(20);

// ---- copies that are under way -------------------------------------------------------------------

struct Late {
  Tensor target, values; // both of the host
};

std::mutex mutex;
std::vector<Late> pending;
Clock::time_point last_begun;

void synchronize() {
  std::vector<Late> done;
  {
    std::lock_guard<std::mutex> lock(mutex);
    done.swap(pending);
  }
  for (auto& copy : done) {
    copy.target.copy_(copy.values);
  }
}

bool is_idle() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!pending.empty() && Clock::now() - last_begun < kLate) {
      return false;
    }
  }
  synchronize();
  return true;
}

void copy_late(const Tensor& target, Tensor values) {
  if (target.is_contiguous()) {
    std::memset(target.data_ptr(), 0xff, target.nbytes()); // NaN, or -1
  }
  std::lock_guard<std::mutex> lock(mutex);
  pending.push_back({target, std::move(values)});
  last_begun = Clock::now();
}

// ---- memory ----------------------------------------------------------------------------------------

void release(void* pointer) {
  c10::GetCPUAllocator()->raw_deallocate(pointer);
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = bytes ? c10::GetCPUAllocator()->raw_allocate(bytes) : nullptr;
    return {pointer, pointer, &release, c10::Device(kDevice, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

std::mutex pinned_mutex;
std::set<const void*> pinned;

void release_pinned(void* pointer) {
  {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.erase(pointer);
  }
  release(pointer);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = c10::GetCPUAllocator()->raw_allocate(bytes ? bytes : 1);
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.insert(pointer);
    return {pointer, pointer, &release_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release_pinned;
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

DeviceAllocator device_allocator;
PinnedAllocator pinned_allocator;
REGISTER_ALLOCATOR(kDevice, &device_allocator);

bool is_pinned(const void* pointer) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  return pinned.count(pointer) > 0;
}

// ---- the device ------------------------------------------------------------------------------------

at::Generator& generator() {
  static at::Generator own = at::detail::createCPUGenerator();
  return own;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return generator();
  }
  bool isPinnedPtr(const void* pointer) const override {
    return is_pinned(pointer);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return &pinned_allocator;
  }
};

// One stream: an event waits for all copies, also those that were begun after it.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kDevice;
  }
  c10::Device exchangeDevice(c10::Device) const override {
    return {kDevice, 0};
  }
  c10::Device getDevice() const override {
    return {kDevice, 0};
  }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kDevice, 0));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return getStream(device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag)
      const override {
    static char recorded;
    *event = &recorded;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    return event == nullptr || is_idle();
  }
  void synchronizeEvent(void*) const override {
    synchronize();
  }
  bool queryStream(const c10::Stream&) const override {
    return is_idle();
  }
  void synchronizeStream(const c10::Stream&) const override {
    synchronize();
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    synchronize();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- operators ---------------------------------------------------------------------------------------

Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> type,
    std::optional<at::Layout>,
    std::optional<at::Device>,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(
      size, &device_allocator, keys, c10::dtype_or_default(type), format);
}

Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<at::ScalarType> type,
    std::optional<at::Layout>,
    std::optional<at::Device>,
    std::optional<bool>) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(
      size, stride, &device_allocator, keys, c10::dtype_or_default(type));
}

// The same memory as a tensor of the host.
Tensor on_host(const Tensor& tensor) {
  if (tensor.device().type() != kDevice) {
    return tensor;
  }
  const auto options = tensor.options().device(c10::DeviceType::CPU);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
}

// Whether this thread computes an operator: its copies are the device's own, and wait for nothing.
thread_local bool computes = false;

struct Computing {
  Computing() {
    computes = true;
  }
  ~Computing() {
    computes = false;
  }
};

Tensor copy_from(const Tensor& source, const Tensor& target, bool non_blocking) {
  const bool to_host = target.device().type() == c10::DeviceType::CPU;
  if (to_host && non_blocking && is_pinned(target.storage().data())) {
    copy_late(target, on_host(source).clone());
    return target;
  }
  if (to_host && !computes) {
    synchronize();
  }
  on_host(target).copy_(on_host(source));
  return target;
}

// Copies a result computed on the host to the device, and resizes an `out=` target.
Tensor copy_and_resize(const Tensor& source, const Tensor& target) {
  if (target.sizes() != source.sizes()) {
    const auto fresh = at::empty(source.sizes(), target.options());
    target.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
    target.unsafeGetTensorImpl()->set_sizes_contiguous(source.sizes());
  }
  return copy_from(source, target, false);
}

void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor() && value.toTensor().defined()) {
      const auto& tensor = value.toTensor();
      TORCH_CHECK(
          tensor.device().type() == kDevice || tensor.dim() == 0,
          "Expected all tensors to be on the same device, but ", op.schema().name(),
          " got a host tensor of shape ", tensor.sizes());
    }
  }
}

// Operators without a kernel here run on the host.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_devices(op, *stack);
  const auto& arguments = op.schema().arguments();
  const auto begin = stack->size() - arguments.size();
  for (size_t index = 0; index < arguments.size(); ++index) {
    auto& value = (*stack)[begin + index];
    if (arguments[index].name() == "generator" && value.isNone()) {
      value = generator();
    }
  }
  const Computing computing;
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_and_resize);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("unfold", &at::native::unfold);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY(standin, m) {
  m.def("begin() -> ()", []() {
    static Hooks hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
  });
  m.def("synchronize() -> ()", []() { synchronize(); });
  m.def("manual_seed(int seed) -> ()", [](int64_t seed) {
    generator().set_current_seed(static_cast<uint64_t>(seed));
  });
  m.def("get_rng_state() -> Tensor", []() { return generator().get_state(); });
  m.def("set_rng_state(Tensor state) -> ()", [](const Tensor& state) {
    generator().set_state(state);
  });
}
