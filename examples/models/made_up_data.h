// The examples' data on a machine without the packages that have it.
//
// Thread rule: one thread, before any data is read.
#pragma once

namespace vedette::examples {

// From now on Images::fashion_mnist() and Text::licences() are made up from a fixed seed: as many images, and a text of
// the licences' length.
void use_made_up_data() noexcept;

}  // namespace vedette::examples
