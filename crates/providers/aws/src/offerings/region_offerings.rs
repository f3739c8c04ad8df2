//! What the region sells just now: types, zones and prices. Types and zones are kept fresh in the background of calls: readers never
//! wait for a refresh once there is something to read. Prices are read by workers, and are never waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use mortise_cloudprovider::{InstanceType, ProviderWorker};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::offerings::describe;
use crate::offerings::prices::{PriceState, PriceView, Prices};
use crate::sdk::AwsClients;
use mortise_aws_catalog::Ec2Catalog;
use mortise_aws_catalog::instance_type::{LaunchZones, ZonePrices};
use mortise_aws_catalog::instance_type_info::InstanceTypeInfo;
use mortise_aws_catalog::node_settings::NodeSettings;

/// How long types and zones are believed: EC2 adds some every few weeks.
const TYPES_TTL: Duration = Duration::from_secs(12 * 3600);
/// How often the log is told what there is to say about prices.
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
        };
        view.types
            .get(at)
            .map(|info| info.instance_type(shape, &placement))
    }

    /// The types that zones of `zones` offer, as a class with these settings has them. Sorted by name.
    pub(crate) fn instance_types(
        &self,
        view: &OfferingsView,
        settings: &NodeSettings,
        zones: &BTreeMap<Arc<str>, Option<Arc<str>>>,
    ) -> Vec<InstanceType> {
        let types = view.types.iter().filter_map(|info| {
            let places = Self::places(view, &info.name, zones);
            let region = Arc::from(&*self.clients.region);
            (!places.is_empty())
                .then(|| info.instance_type(settings, &LaunchZones { region, places }))
        });
        types.collect()
    }

    /// The zones of `zones` that sell the type, with prices.
    fn places(
        view: &OfferingsView,
        name: &str,
        zones: &BTreeMap<Arc<str>, Option<Arc<str>>>,
    ) -> Vec<ZonePrices> {
        let Some(sold) = view.zones.get(name) else {
            return Vec::new();
        };
        let on_demand = view.prices.on_demand(name);
        let here = zones.iter().filter(|(zone, _)| sold.contains(*zone));
        here.map(|(zone, id)| ZonePrices {
            zone: Arc::clone(zone),
            zone_id: id.clone(),
            on_demand,
            spot: view.prices.spot(name, zone),
        })
        .collect()
    }
}
