//! What the region sells just now: types, zones and prices, kept fresh in the background of calls. Readers never wait for a refresh
//! once there is something to read, and never for spot prices: until those came, the on-demand prices we bring along stand for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mortise_apis::values::money::MicroUsd;
use mortise_aws_class::status::CapacityReservation;
use mortise_cloudprovider::InstanceType;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::offerings::describe::{self, SpotPrices};
use crate::sdk::AwsClients;
use mortise_aws_catalog::Ec2Catalog;
use mortise_aws_catalog::expression_values::ReservedTexts;
use mortise_aws_catalog::instance_type::{LaunchZones, PlacementGroup, Reservation, ZonePrices};
use mortise_aws_catalog::instance_type_info::InstanceTypeInfo;
use mortise_aws_catalog::node_settings::NodeSettings;

/// How long types and zones are believed: EC2 adds some every few weeks.
const TYPES_TTL: Duration = Duration::from_secs(12 * 3600);
/// How long spot prices are believed: they move over hours, not minutes.
const SPOT_TTL: Duration = Duration::from_secs(3600);
/// How long after a failed refresh the next one is tried.
const RETRY: Duration = Duration::from_secs(60);

/// Types, zones and spot prices at one time.
#[derive(Clone, Debug)]
pub(crate) struct OfferingsView {
    /// Types that nodes can be made of. Sorted by name.
    types: Arc<Vec<InstanceTypeInfo>>,
    /// Zones by type.
    zones: Arc<BTreeMap<Arc<str>, BTreeSet<Arc<str>>>>,
    /// Spot prices; `None` until they could be read once.
    spot: Option<Arc<SpotPrices>>,
    types_due: Instant,
}

impl OfferingsView {
    /// Types that nodes can be made of. Sorted by name.
    pub(crate) fn types(&self) -> &[InstanceTypeInfo] {
        &self.types
    }
}

/// Spot prices, and the task that reads them again.
#[derive(Debug)]
struct Spot {
    prices: Option<Arc<SpotPrices>>,
    due: Instant,
    reading: bool,
}

/// What the region offers.
#[derive(Debug)]
pub(crate) struct RegionOfferings {
    clients: Arc<AwsClients>,
    tables: Arc<Ec2Catalog>,
    view: Mutex<Option<OfferingsView>>,
    refreshing: tokio::sync::Mutex<()>,
    spot: Arc<Mutex<Spot>>,
}

impl RegionOfferings {
    /// Knows nothing yet, and calls nothing; `tables` is what EC2 itself does not describe.
    pub(crate) fn new(clients: Arc<AwsClients>, tables: Arc<Ec2Catalog>) -> Self {
        Self {
            clients,
            tables,
            view: Mutex::new(None),
            refreshing: tokio::sync::Mutex::new(()),
            spot: Arc::new(Mutex::new(Spot {
                prices: None,
                due: Instant::now(),
                reading: false,
            })),
        }
    }

    /// What is sold. Reads again what is too old; a failed refresh keeps the old and is tried again a minute later.
    /// # Errors
    /// Only while there is nothing old to keep.
    pub(crate) async fn view(&self) -> Result<OfferingsView, Failure> {
        self.read_spot_prices();
        let fresh = |view: &OfferingsView| Instant::now() < view.types_due;
        if let Some(view) = self.current().filter(fresh) {
            return Ok(view);
        }
        let turn = match (self.refreshing.try_lock(), self.current()) {
            (Ok(turn), _) => turn,
            (Err(_), Some(old)) => return Ok(old), // another call refreshes it
            (Err(_), None) => self.refreshing.lock().await,
        };
        let old = self.current();
        if let Some(view) = old.clone().filter(fresh) {
            return Ok(view);
        }
        let view = self.refresh(old).await?;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.clone());
        drop(turn);
        Ok(self.current().unwrap_or(view))
    }

    async fn refresh(&self, old: Option<OfferingsView>) -> Result<OfferingsView, Failure> {
        let now = Instant::now();
        let read = futures::try_join!(
            describe::instance_types(&self.clients, &self.tables),
            describe::offerings(&self.clients)
        );
        let (types, zones, types_due) = match (read, old) {
            (Ok((types, zones)), _) => {
                tracing::info!(types = types.len(), "updated instance types");
                (Arc::new(types), Arc::new(zones), now + TYPES_TTL)
            }
            (Err(error), Some(old)) => {
                tracing::warn!(%error, "failed to update instance types, the previous list stays in use");
                (old.types, old.zones, now + RETRY)
            }
            (Err(error), None) => return Err(error),
        };
        Ok(OfferingsView {
            types,
            zones,
            spot: None,
            types_due,
        })
    }

    /// Has spot prices read in a task of its own, if those we have are too old.
    fn read_spot_prices(&self) {
        {
            let mut spot = self.spot.lock().unwrap_or_else(PoisonError::into_inner);
            if spot.reading || Instant::now() < spot.due {
                return;
            }
            spot.reading = true;
        }
        let (spot, clients) = (Arc::clone(&self.spot), Arc::clone(&self.clients));
        tokio::spawn(async move {
            let read = describe::spot_prices(&clients).await;
            let mut spot = spot.lock().unwrap_or_else(PoisonError::into_inner);
            spot.reading = false;
            match read {
                Ok(prices) => {
                    tracing::info!(types = prices.len(), "updated spot prices");
                    spot.prices = Some(Arc::new(prices));
                    spot.due = Instant::now() + SPOT_TTL;
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to update spot prices, the previous ones stay in use, or on-demand prices where none are known");
                    spot.due = Instant::now() + RETRY;
                }
            }
        });
    }

    /// The first spot prices are on their way.
    pub(crate) fn awaits_spot_prices(&self) -> bool {
        let spot = self.spot.lock().unwrap_or_else(PoisonError::into_inner);
        spot.prices.is_none() && spot.reading
    }

    /// What was read last, with the spot prices of now.
    fn current(&self) -> Option<OfferingsView> {
        let view = self
            .view
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        let spot = self.spot.lock().unwrap_or_else(PoisonError::into_inner);
        Some(OfferingsView {
            spot: spot.prices.clone(),
            ..view
        })
    }

    /// A type as an instance of it in the zone has it, whether or not it is sold there just now; `None` for a type that is not known.
    pub(crate) fn instance_type(
        &self,
        name: &str,
        shape: &NodeSettings,
        zone: &str,
    ) -> Option<InstanceType> {
        let view = self.current()?;
        let at = view
            .types
            .binary_search_by(|each| (*each.name).cmp(name))
            .ok()?;
        let place = ZonePrices {
            zone: Arc::from(zone),
            zone_id: None,
            on_demand: self.tables.on_demand_price(name, &self.clients.region),
            spot: None,
        };
        let placement = LaunchZones {
            region: Arc::from(&*self.clients.region),
            places: vec![place],
            ..LaunchZones::default()
        };
        view.types
            .get(at)
            .map(|info| info.instance_type(shape, &placement))
    }

    /// Reserved amounts of a class that are expressions, for a type; `None` for a type that is not known.
    pub(crate) fn reserved_texts(&self, name: &str, shape: &NodeSettings) -> Option<ReservedTexts> {
        let view = self.current()?;
        let types = &view.types;
        let at = types.binary_search_by(|each| (*each.name).cmp(name)).ok()?;
        Some(types.get(at)?.reserved_texts(shape))
    }

    /// All types of the region as a class has them, as if every offering were available, and with nothing left in reservations: how
    /// it is at a moment is another question. Sorted by name.
    /// # Errors
    /// There is nothing to choose from.
    pub(crate) fn instance_types(
        &self,
        view: &OfferingsView,
        class: &ClassShape<'_>,
    ) -> Result<Vec<InstanceType>, NoInstanceTypes> {
        if view.types.is_empty() {
            return Err(NoInstanceTypes::Types);
        }
        if view.zones.is_empty() {
            return Err(NoInstanceTypes::Offerings);
        }
        if class.zones.is_empty() {
            return Err(NoInstanceTypes::Subnets);
        }
        let mut failed = view.types.iter();
        if let Some(text) = failed.find_map(|info| info.max_pods_failure(class.settings)) {
            return Err(NoInstanceTypes::Expression(text));
        }
        let mut ignored = view.types.iter();
        if let Some(error) = ignored.find_map(|info| info.reserved_failure(class.settings)) {
            tracing::warn!(error, "a reserved amount has no value, the default is used");
        }
        let region: Arc<str> = Arc::from(&*self.clients.region);
        let everywhere: BTreeSet<&Arc<str>> = view.zones.values().flatten().collect();
        let types = view.types.iter().map(|info| {
            let (places, elsewhere) = self.places(view, &info.name, class.zones, &everywhere);
            let own = class.reservations.iter();
            let own = own.filter(|each| *each.instance_type == *info.name);
            let placement = LaunchZones {
                region: Arc::clone(&region),
                places,
                elsewhere,
                reservations: own.map(reservation).collect(),
                group: class.group.cloned(),
            };
            info.instance_type(class.settings, &placement)
        });
        Ok(types.collect())
    }

    /// All zones with the type's prices: first those of `zones` that sell the type, then the others. Until spot prices were read,
    /// the on-demand price stands for them: the careful guess.
    fn places(
        &self,
        view: &OfferingsView,
        name: &str,
        zones: &BTreeMap<Arc<str>, Option<Arc<str>>>,
        everywhere: &BTreeSet<&Arc<str>>,
    ) -> (Vec<ZonePrices>, Vec<ZonePrices>) {
        let on_demand = self.tables.on_demand_price(name, &self.clients.region);
        let spot = |zone: &str| -> Option<MicroUsd> {
            match &view.spot {
                Some(prices) => prices.get(name)?.get(zone).copied(),
                None => on_demand,
            }
        };
        let sold = view.zones.get(name);
        let is_sold = |zone: &Arc<str>| sold.is_some_and(|zones| zones.contains(zone));
        let all = everywhere.iter().map(|zone| ZonePrices {
            zone: Arc::clone(zone),
            zone_id: zones.get(*zone).cloned().flatten(),
            on_demand,
            spot: spot(zone),
        });
        all.partition(|place| zones.contains_key(&place.zone) && is_sold(&place.zone))
    }
}

/// What a class says about its types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassShape<'a> {
    /// The inside of its nodes.
    pub(crate) settings: &'a NodeSettings,
    /// Zones that it has a subnet in, with their ids.
    pub(crate) zones: &'a BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// Its capacity reservations.
    pub(crate) reservations: &'a [CapacityReservation],
    /// Its placement group.
    pub(crate) group: Option<&'a PlacementGroup>,
}

/// Why a class has no instance types.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoInstanceTypes {
    /// EC2 describes none.
    #[error("no instance types found")]
    Types,
    /// EC2 offers none anywhere.
    #[error("no instance types offerings found")]
    Offerings,
    /// The class has no subnet to launch them in.
    #[error("no subnets found")]
    Subnets,
    /// An expression of the class has no value for some type.
    #[error("{0}")]
    Expression(String),
}

fn reservation(of: &CapacityReservation) -> Reservation {
    Reservation {
        id: Arc::from(&*of.id),
        zone: Arc::from(&*of.availability_zone),
        block: of.reservation_type.as_deref() == Some("capacity-block"),
        interruptible: of.interruptible == Some(true),
        expiring: of.state.as_deref() == Some("expiring"),
        left: 0,
    }
}
