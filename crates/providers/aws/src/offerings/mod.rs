//! What the region offers at the moment: instance types, zones and prices, and offerings that it refused lately.

pub(crate) mod availability;
pub(crate) mod describe;
pub(crate) mod described_type;
pub(crate) mod discovered_memory;
pub(crate) mod on_demand_prices;
pub(crate) mod price_list;
pub(crate) mod prices;
pub(crate) mod region_offerings;
pub(crate) mod reservation_counts;
pub(crate) mod shifted_zones;
pub(crate) mod spot_prices;
pub(crate) mod unavailability_cause;
pub(crate) mod unavailable_offerings;
