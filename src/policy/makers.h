// Every policy's maker, for the one list in table.cc.
#pragma once
#include <cstdint>
#include <memory>

#include "vedette/policy.h"

namespace vedette {

std::unique_ptr<Policy> make_on_demand(std::uint64_t seed);  // lru.cc
std::unique_ptr<Policy> make_flashneuron(std::uint64_t seed);  // flashneuron.cc
std::unique_ptr<Policy> make_flashneuron_of_g10(std::uint64_t seed);  // flashneuron_of_g10.cc
std::unique_ptr<Policy> make_g10_of_artifact(std::uint64_t seed);  // g10.cc
std::unique_ptr<Policy> make_g10(std::uint64_t seed);  // g10.cc
std::unique_ptr<Policy> make_deepum(std::uint64_t seed);  // deepum.cc
std::unique_ptr<Policy> make_vdnn_all(std::uint64_t seed);  // vdnn.cc
std::unique_ptr<Policy> make_vdnn_conv(std::uint64_t seed);  // vdnn.cc
std::unique_ptr<Policy> make_vdnn_dyn(std::uint64_t seed);  // vdnn.cc
std::unique_ptr<Policy> make_superneurons(std::uint64_t seed);  // superneurons.cc
std::unique_ptr<Policy> make_capuchin(std::uint64_t seed);  // capuchin.cc
std::unique_ptr<Policy> make_autoswap_doa(std::uint64_t seed);  // autoswap.cc
std::unique_ptr<Policy> make_autoswap_aoa(std::uint64_t seed);  // autoswap.cc
std::unique_ptr<Policy> make_autoswap_wdoa(std::uint64_t seed);  // autoswap.cc
std::unique_ptr<Policy> make_autoswap_swdoa(std::uint64_t seed);  // autoswap.cc
std::unique_ptr<Policy> make_autoswap_vote(std::uint64_t seed);  // autoswap.cc
std::unique_ptr<Policy> make_ocdnn(std::uint64_t seed);  // ocdnn.cc
std::unique_ptr<Policy> make_lms(std::uint64_t seed);  // lms.cc
std::unique_ptr<Policy> make_tflms(std::uint64_t seed);  // tflms.cc
std::unique_ptr<Policy> make_dragon(std::uint64_t seed);  // dragon.cc
std::unique_ptr<Policy> make_zero_infinity(std::uint64_t seed);  // zero_infinity.cc
std::unique_ptr<Policy> make_belady(std::uint64_t seed);  // belady.cc
std::unique_ptr<Policy> make_swapadvisor(std::uint64_t seed);  // swapadvisor.cc
std::unique_ptr<Policy> make_dtr(std::uint64_t seed);  // dtr.cc
std::unique_ptr<Policy> make_autotm(std::uint64_t seed);  // autotm.cc
std::unique_ptr<Policy> make_sentinel(std::uint64_t seed);   // sentinel.cc
std::unique_ptr<Policy> make_vedette(std::uint64_t seed);    // vedette.cc
std::unique_ptr<Policy> make_unified_memory(std::uint64_t seed);  // unified_memory.cc
std::unique_ptr<Policy> make_unified_memory_ahead(std::uint64_t seed);

}  // namespace vedette
