#![no_main]

#[macro_use]
mod json;

json_target!(mortise_fuzz::admission);
