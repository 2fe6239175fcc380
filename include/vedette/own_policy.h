// A policy in a shared library of its own, which `vedette compare --policy ./mine.so` runs beside the others
// (docs/own-policy.md). One file of C++ that ends with
//
//   VEDETTE_OWN_POLICY(Mine, "mine", "no paper", "the largest tensor leaves first")
//
// where Mine is a Policy (vedette/policy.h) that is made from a seed, or from nothing. It needs these headers and links
// nothing: of vedette it may use definitions in headers alone.
//
// The library exports one function, vedette_own_policy(). Its result begins with the interface that it was built for,
// which vedette compares with its own before it reads further.
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>

#include "vedette/policy.h"

namespace vedette {

// Names the layout of all that a policy and vedette hand each other: a number that grows with each change of meaning,
// and the sizes of the types.
constexpr std::uint64_t policy_interface() noexcept {
  constexpr std::uint64_t meaning = 3;
  std::uint64_t mixed = meaning;
  for (const std::size_t size :
       {sizeof(Tensor), sizeof(Layer), sizeof(Op), sizeof(PageAccess), sizeof(Trace), sizeof(Tier), sizeof(Link),
        sizeof(Machine), sizeof(Move), sizeof(Recomputation), sizeof(Plan), sizeof(StepMeasured), sizeof(Event),
        sizeof(PlacedExtent), sizeof(View), sizeof(Reaction), sizeof(Result<Plan>), sizeof(PolicyEntry)})
    mixed = mixed * 1'000'003 + size;
  return meaning << 32 | (mixed ^ mixed >> 32) % 0xffff'ffff;
}

struct OwnPolicy {
  std::uint64_t interface = 0;  // first for ever: policy_interface() of the headers that it was built with
  PolicyEntry entry;
};

// Thread rule: any thread; the answer is the same each time.
extern "C" using OwnPolicyFunction = const OwnPolicy * ();

}  // namespace vedette

#define VEDETTE_OWN_POLICY(type, name, paper, summary)                                                 \
  extern "C" __attribute__((visibility("default"))) const ::vedette::OwnPolicy* vedette_own_policy() { \
    static const ::vedette::OwnPolicy policy{                                                          \
        ::vedette::policy_interface(),                                                                 \
        {name, paper, summary, [](std::uint64_t seed) -> std::unique_ptr<::vedette::Policy> {          \
           if constexpr (std::is_constructible_v<type, std::uint64_t>)                                 \
             return std::make_unique<type>(seed);                                                      \
           else                                                                                        \
             return std::make_unique<type>();                                                          \
         }}};                                                                                          \
    return &policy;                                                                                    \
  }
