//! Links the released program with packed relocations.
//!
//! A position-independent program has a relocation for each address in its tables, 24 bytes each in the usual form and a bit in the
//! packed one. Both are read when the program starts, and stay resident. glibc 2.36 and later read the packed form, lld and GNU ld 2.38
//! and later write it; an older GNU ld says that it ignores the option.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is =
        |variable: &str, value: &str| std::env::var(variable).is_ok_and(|given| given == value);
    if is("PROFILE", "release")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
