//! What the region offers at the moment: instance types, zones and spot prices from EC2, and offerings that it refused lately.

pub(crate) mod region_offerings;
pub(crate) mod reservation_counts;
pub(crate) mod unavailable_offerings;

mod describe;
mod described_type;
