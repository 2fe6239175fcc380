#!/usr/bin/env bash
# Installs what scripts/release.sh made, each part in a folder of its own, and runs README's loop from it.
#
#   scripts/try_release.sh [FOLDER] [archive] [wheel] [sources]    default: dist/release, all three
#
# archive: README's loop in C++ is built against it, outside of the tree. wheel: a new virtual environment with PyPI's
# torch, which is downloaded (2 GB). sources: unpacked, set up and built; the demo runs. Meant for a machine that has
# nothing else; takes 10 to 20 minutes on 2 cores.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,8p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 0 ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
release=$(realpath "${1:-dist/release}")
parts=("${@:2}")
[ ${#parts[@]} -gt 0 ] || parts=(archive wheel sources)
here=$PWD place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

say() { printf 'try_release: %s\n' "$*" >&2; }
(cd "$release" && sha256sum --quiet --check SHA256SUMS)
say "the checksums hold"

try_archive() {
  mkdir -p "$place/archive"
  tar -C "$place/archive" --strip-components=1 -xzf "$release"/vedette-*-linux-*.tar.gz
  cp -r "$here/tests/package/program" "$place/program"
  cmake -S "$place/program" -B "$place/built" -G Ninja -D CMAKE_BUILD_TYPE=Release -D case=torch \
    -D CMAKE_PREFIX_PATH="$place/archive" \
    -D VEDETTE_TORCH_DIR="$(echo "$here"/.venv/lib/python3*/site-packages/torch)" \
    > "$place/log"
  cmake --build "$place/built" > "$place/log" || { cat "$place/log" >&2; return 1; }
  (cd "$place" && built/program && archive/bin/vedette info run.vedette)
}

try_wheel() {
  python3 -m venv "$place/env"
  "$place/env/bin/pip" install --quiet --disable-pip-version-check "$release"/vedette-*.whl numpy
  cat > "$place/loop.py" << 'LOOP'
import torch, vedette

def train(guard=None):
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])
    optimizer = torch.optim.AdamW(model.parameters())
    if guard: guard.watch(model); guard.watch(optimizer)
    losses = []
    for _ in range(6):
        step = guard.step() if guard else torch.enable_grad()
        with step:
            optimizer.zero_grad()
            loss = model(torch.randn(64, 1024)).square().mean()
            loss.backward(); optimizer.step()
            losses.append(loss.item())
    return losses

plain = train()
with vedette.Guard("40MiB", slow="nvme:.", record="run.vedette") as guard:
    assert train(guard) == plain
print("vedette", vedette.__version__, "with torch", torch.__version__, "has the plain losses")
LOOP
  (cd "$place" && env/bin/python loop.py && env/bin/vedette info run.vedette)
}

try_sources() {
  mkdir -p "$place/sources"
  tar -C "$place/sources" --strip-components=1 -xzf "$release"/vedette-*-source.tar.gz
  (cd "$place/sources" && scripts/demo.sh --steps 8)
}

for part in "${parts[@]}"; do
  case $part in archive | wheel | sources) ;; *) say "there is no part '$part'"; exit 2 ;; esac
  since=$SECONDS
  "try_$part"
  say "$part: README's loop ran, $(((SECONDS - since) / 60)) min $(((SECONDS - since) % 60)) s"
done
