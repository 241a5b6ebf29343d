# Everything a contributor does, by name. `just` alone lists it.

default:
    @just --list

# Start the server with what .env and the environment say
run *args:
    cargo run --release -- {{args}}

# All tests
test:
    cargo test --workspace

# What CI runs
ci:
    .ci/run

# Format and lint
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Prose and code agree
check:
    cargo xtask check

# Write the generated documents anew
docs:
    cargo xtask docs

# A Debian package, with unit, settings file, man page and completions; needs cargo-deb
deb:
    cargo xtask dist
    cargo deb --package ngit-grasp --locked

# Simulated worlds
sim seeds="0..1000":
    cargo run --release -p grasp-sim -- --seeds {{seeds}}

# The story of one simulated world
story seed:
    cargo run --release -p grasp-sim -- --seed {{seed}} --trace

# Figures of the relay
bench *args:
    cargo run --release -p bench -- relay {{args}}

# The real ngit client against our servers; builds it when it is not on PATH
e2e:
    e2e/run

# Fuzz one target (client_message, relay_message, filter, event, negentropy); needs nightly and cargo-fuzz
fuzz target seconds="60":
    cargo +nightly fuzz run {{target}} -- -max_total_time={{seconds}}
