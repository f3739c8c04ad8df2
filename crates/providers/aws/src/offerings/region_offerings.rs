//! What the region sells just now: types, zones and prices. Types and zones are kept fresh in the background of calls: readers never
//! wait for a refresh once there is something to read. Prices are read by workers, and are never waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use mortise_aws_class::labels::CAPACITY_BLOCK;
use mortise_aws_class::status::CapacityReservation;
use mortise_cloudprovider::{InstanceType, ProviderWorker};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::offerings::describe;
use crate::offerings::prices::{PriceState, PriceView, Prices};
use crate::sdk::AwsClients;
use mortise_aws_catalog::Ec2Catalog;
use mortise_aws_catalog::expression_values::{ExpressionValues, ReservedTexts};
use mortise_aws_catalog::instance_type_info::InstanceTypeInfo;
use mortise_aws_catalog::launch_zones::{LaunchZones, PlacementGroup, Reservation, ZonePrices};
use mortise_aws_catalog::node_settings::NodeSettings;

/// How long types and zones are believed: EC2 adds some every few weeks.
const TYPES_TTL: Duration = Duration::from_secs(12 * 3600);
/// How often the log repeats what there is to say about prices.
const REPORT_PERIOD: Duration = Duration::from_secs(600);
/// How long after a failed refresh the next one is tried.
const RETRY: Duration = Duration::from_secs(60);

/// Types, zones and prices at one time.
#[derive(Clone, Debug)]
pub(crate) struct OfferingsView {
    /// Types that nodes can be made of. Sorted by name.
    types: Arc<Vec<InstanceTypeInfo>>,
    /// Zones by type.
    zones: Arc<BTreeMap<Arc<str>, BTreeSet<Arc<str>>>>,
    prices: PriceView,
    types_due: Instant,
}

impl OfferingsView {
    /// Types that nodes can be made of. Sorted by name.
    pub(crate) fn types(&self) -> &[InstanceTypeInfo] {
        &self.types
    }
}

/// What the region offers.
#[derive(Debug)]
pub(crate) struct RegionOfferings {
    clients: Arc<AwsClients>,
    tables: Arc<Ec2Catalog>,
    view: Mutex<Option<OfferingsView>>,
    refreshing: tokio::sync::Mutex<()>,
    prices: Arc<Prices>,
}

impl RegionOfferings {
    /// Knows nothing yet, and calls nothing; `tables` is what EC2 itself does not describe.
    pub(crate) fn new(
        clients: Arc<AwsClients>,
        tables: Arc<Ec2Catalog>,
        prices: Arc<Prices>,
    ) -> Self {
        Self {
            clients,
            tables,
            view: Mutex::new(None),
            refreshing: tokio::sync::Mutex::new(()),
            prices,
        }
    }

    /// As the recordings began: with the prices of us-east-1, whatever the region.
    #[cfg(test)]
    pub(crate) fn as_recorded(clients: Arc<AwsClients>, tables: Arc<Ec2Catalog>) -> Self {
        use crate::offerings::on_demand_prices::OnDemandPrices;

        let assumed = OnDemandPrices::at_start(&clients.region, Some("us-east-1"));
        let prices = Prices::with(Arc::clone(&clients), false, assumed.unwrap());
        Self::new(clients, tables, Arc::new(prices))
    }

    /// What is sold. Reads again what is too old; a failed refresh keeps the old and is tried again a minute later.
    /// # Errors
    /// Only while there is nothing old to keep.
    pub(crate) async fn view(&self) -> Result<OfferingsView, Failure> {
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
            prices: self.prices.view(),
            types_due,
        })
    }

    /// The first prices are on their way.
    pub(crate) fn awaits_prices(&self) -> bool {
        self.prices.awaits_first()
    }

    /// The work that keeps prices current, and says in the log when they are not.
    pub(crate) fn price_workers(self: &Arc<Self>) -> Vec<ProviderWorker> {
        let report = ProviderWorker {
            name: "price-report",
            run: Box::pin(Arc::clone(self).report_prices()),
        };
        self.prices.workers().into_iter().chain([report]).collect()
    }

    /// Logs each change of what there is to say about prices.
    async fn report_prices(self: Arc<Self>) {
        let mut said = None;
        loop {
            tokio::time::sleep(REPORT_PERIOD).await;
            let note = self.price_state().note(Timestamp::now());
            match &note {
                Some(note) if said.as_ref() != Some(note) => tracing::warn!("{note}"),
                None if said.is_some() => tracing::info!("all prices are live and new"),
                _ => {}
            }
            said = note;
        }
    }

    /// Where prices are from, and which types have none.
    pub(crate) fn price_state(&self) -> PriceState {
        let view = self.current();
        let sold = view.iter().flat_map(|view| {
            let known = view.types.iter();
            known.filter(|each| {
                view.zones.contains_key(&each.name)
                    && each.usage.iter().any(|class| &**class == "on-demand")
            })
        });
        self.prices.state(sold.map(|each| &each.name))
    }

    /// What was read last, with the prices of now.
    fn current(&self) -> Option<OfferingsView> {
        let view = self
            .view
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        Some(OfferingsView {
            prices: self.prices.view(),
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
            on_demand: view.prices.on_demand(name),
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
        Some(ExpressionValues::new(types.get(at)?, shape).reserved_texts())
    }

    /// All types of the region as a class has them, as if every offering were available, and with nothing left in reservations: how
    /// it is at a moment is another question. Sorted by name. Where they are as in `known`, also sorted, they share its memory.
    /// # Errors
    /// There is nothing to choose from.
    pub(crate) fn instance_types(
        &self,
        view: &OfferingsView,
        class: &ClassShape<'_>,
        known: &[InstanceType],
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
        let values = |info| ExpressionValues::new(info, class.settings);
        let mut failed = view.types.iter().map(values);
        if let Some(text) = failed.find_map(ExpressionValues::max_pods_failure) {
            return Err(NoInstanceTypes::Expression(text));
        }
        let mut ignored = view.types.iter().map(values);
        if let Some(error) = ignored.find_map(ExpressionValues::reserved_failure) {
            tracing::warn!(error, "a reserved amount has no value, the default is used");
        }
        let region: Arc<str> = Arc::from(&*self.clients.region);
        let everywhere: BTreeSet<&Arc<str>> = view.zones.values().flatten().collect();
        let types = view.types.iter().map(|info| {
            let (places, elsewhere) = Self::places(view, &info.name, class.zones, &everywhere);
            let own = class.reservations.iter();
            let own = own.filter(|each| *each.instance_type == *info.name);
            let placement = LaunchZones {
                region: Arc::clone(&region),
                places,
                elsewhere,
                reservations: own.map(reservation).collect(),
                group: class.group.cloned(),
            };
            let new = info.instance_type(class.settings, &placement);
            let at = known.binary_search_by(|each| each.name.cmp(&new.name));
            match at.ok().and_then(|at| known.get(at)) {
                Some(known) => new.sharing_requirements(known),
                None => new,
            }
        });
        Ok(types.collect())
    }

    /// All zones with the type's prices: first those of `zones` that sell the type, then the others.
    fn places(
        view: &OfferingsView,
        name: &str,
        zones: &BTreeMap<Arc<str>, Option<Arc<str>>>,
        everywhere: &BTreeSet<&Arc<str>>,
    ) -> (Vec<ZonePrices>, Vec<ZonePrices>) {
        let on_demand = view.prices.on_demand(name);
        let sold = view.zones.get(name);
        let is_sold = |zone: &Arc<str>| sold.is_some_and(|zones| zones.contains(zone));
        let all = everywhere.iter().map(|zone| ZonePrices {
            zone: Arc::clone(zone),
            zone_id: zones.get(*zone).cloned().flatten(),
            on_demand,
            spot: view.prices.spot(name, zone),
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
        block: of.reservation_type.as_deref() == Some(CAPACITY_BLOCK),
        interruptible: of.interruptible == Some(true),
        expiring: of.state.as_deref() == Some("expiring"),
        left: 0,
    }
}
