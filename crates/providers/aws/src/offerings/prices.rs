//! The prices of the region, kept current by workers. Readers take what is there and never wait; no lock is held during a call.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use mortise_apis::values::money::MicroUsd;
use mortise_aws_catalog::Currency;
use mortise_cloudprovider::{CapacityType, GaugeName, ProviderGauge, ProviderWorker};
use tokio::time::Instant;

use crate::config::AwsConfig;
use crate::offerings::on_demand_prices::{AssumedPriceError, OnDemandPrices, PriceSource};
use crate::offerings::price_list::{self, PriceError};
use crate::offerings::spot_prices::{self, SpotByType};
use crate::sdk::AwsClients;

/// How long on-demand prices are believed: they change a few times a year.
/// # Source
/// The reference implementation's number.
const ON_DEMAND_PERIOD: Duration = Duration::from_secs(12 * 3600);
/// How long spot prices are believed: they move over hours, and a read is five calls in the largest region.
const SPOT_PERIOD: Duration = Duration::from_secs(3600);
/// How long after a failed read the next one is tried, doubled with each.
const RETRY: Duration = Duration::from_secs(60);
/// Longest pause after a failed read.
const MAX_RETRY: Duration = Duration::from_secs(15 * 60);
/// From this age on, prices are reported as old.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// What is read from one place at one pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PriceKind {
    OnDemand,
    Spot,
}

impl PriceKind {
    const fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
        }
    }

    const fn period(self) -> Duration {
        match self {
            Self::OnDemand => ON_DEMAND_PERIOD,
            Self::Spot => SPOT_PERIOD,
        }
    }
}

/// Spot prices, and when they were read.
#[derive(Clone, Debug)]
struct SpotPrices {
    by_type: Arc<SpotByType>,
    read: Instant,
}

/// All prices at a time. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct PriceView {
    on_demand: OnDemandPrices,
    /// `None` until they could be read once.
    spot: Option<SpotPrices>,
}

impl PriceView {
    /// The on-demand price of a type; `None` when it is not known.
    pub(crate) fn on_demand(&self, name: &str) -> Option<MicroUsd> {
        self.on_demand.get(name)
    }

    /// All on-demand prices, by type.
    #[cfg(test)]
    pub(crate) fn all_on_demand(&self) -> &price_list::AmountByType {
        self.on_demand.all()
    }

    /// All spot prices that were read; `None` before.
    #[cfg(test)]
    pub(crate) fn all_spot(&self) -> Option<&SpotByType> {
        self.spot.as_ref().map(|spot| &*spot.by_type)
    }

    /// The spot price of a type in a zone. Before any was read, the on-demand price; then `None` where no spot instance is sold.
    pub(crate) fn spot(&self, name: &str, zone: &str) -> Option<MicroUsd> {
        match &self.spot {
            Some(spot) => spot.by_type.get(name)?.get(zone).copied(),
            None => self.on_demand.get(name),
        }
    }
}

/// Where the prices are from, and which types have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriceState {
    /// Of on-demand prices.
    pub(crate) on_demand: PriceSource,
    /// Of spot prices.
    pub(crate) spot: PriceSource,
    /// Currency of both.
    pub(crate) currency: Currency,
    /// Types that are sold here and have no on-demand price: they are offered last. Sorted.
    pub(crate) unpriced: Vec<Arc<str>>,
}

impl PriceState {
    /// One sentence for people when prices are old, assumed or unknown; `None` when all is as it should be.
    pub(crate) fn note(&self, now: Timestamp) -> Option<String> {
        let mut parts = Vec::new();
        for (kind, source) in [("on-demand", &self.on_demand), ("spot", &self.spot)] {
            if source.age(now).is_none_or(|age| age >= OLD) {
                parts.push(format!("{kind} prices {source}"));
            }
        }
        if let Some(first) = self.unpriced.first() {
            let others = match self.unpriced.len() {
                0 | 1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            parts.push(format!(
                "no price is known for {first}{others}, offered after all types with a price"
            ));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// As gauges.
    pub(crate) fn gauges(&self, now: Timestamp) -> Vec<ProviderGauge> {
        let ages = [
            (CapacityType::OnDemand, &self.on_demand),
            (CapacityType::Spot, &self.spot),
        ];
        let ages = ages.into_iter().filter_map(|(capacity_type, source)| {
            Some(ProviderGauge {
                name: GaugeName::PriceAge,
                labels: vec![
                    ("capacity_type", capacity_type.as_str()),
                    ("source", source.label()),
                ],
                value: source.age(now)?.as_secs_f64(),
            })
        });
        let unpriced = ProviderGauge {
            name: GaugeName::UnpricedInstanceTypes,
            labels: Vec::new(),
            value: f64::from(u32::try_from(self.unpriced.len()).unwrap_or(u32::MAX)),
        };
        ages.chain([unpriced]).collect()
    }
}

/// The prices of the region.
#[derive(Debug)]
pub(crate) struct Prices {
    clients: Arc<AwsClients>,
    /// Whether the price list can be asked from here.
    has_price_list: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    view: PriceView,
    /// First reads that are under way.
    first_reads: usize,
}

impl Prices {
    /// What is known at the start. Calls nothing.
    /// # Errors
    /// The setting for assumed prices names a region that cannot serve.
    pub(crate) fn new(
        clients: Arc<AwsClients>,
        config: &AwsConfig,
    ) -> Result<Self, AssumedPriceError> {
        let assumed = config.assumed_price_region.as_deref();
        let on_demand = OnDemandPrices::at_start(&clients.region, assumed)?;
        Ok(Self::with(clients, config.isolated_vpc, on_demand))
    }

    /// Starts with these prices.
    pub(crate) fn with(
        clients: Arc<AwsClients>,
        isolated_vpc: bool,
        on_demand: OnDemandPrices,
    ) -> Self {
        Self {
            has_price_list: !isolated_vpc && has_price_list(&clients.region),
            clients,
            state: Mutex::new(State {
                view: PriceView {
                    on_demand,
                    spot: None,
                },
                first_reads: 0,
            }),
        }
    }

    /// Starts with these spot prices too.
    #[cfg(test)]
    pub(crate) fn with_spot(self, by_type: SpotByType) -> Self {
        let (by_type, read) = (Arc::new(by_type), Instant::now());
        self.lock().view.spot = Some(SpotPrices { by_type, read });
        self
    }

    /// The prices of now.
    pub(crate) fn view(&self) -> PriceView {
        self.lock().view.clone()
    }

    /// The first prices are on their way.
    pub(crate) fn awaits_first(&self) -> bool {
        self.lock().first_reads > 0
    }

    /// Where prices are from; `types` are those that are sold in the region, sorted.
    pub(crate) fn state<'a>(&self, types: impl Iterator<Item = &'a Arc<str>>) -> PriceState {
        let view = self.view();
        let unpriced = types.filter(|name| view.on_demand(name).is_none());
        let unpriced: BTreeSet<Arc<str>> = unpriced.map(Arc::clone).collect();
        let spot = view.spot.as_ref();
        PriceState {
            spot: spot.map_or(PriceSource::OnDemand, |spot| PriceSource::Live(spot.read)),
            currency: view.on_demand.currency(),
            on_demand: view.on_demand.source().clone(),
            unpriced: unpriced.into_iter().collect(),
        }
    }

    /// Reads the price list, where there is one. A failed read changes nothing.
    /// # Errors
    /// A call failed, or a query found nothing.
    pub(crate) async fn update_on_demand(&self) -> Result<(), PriceError> {
        if !self.has_price_list {
            return Ok(());
        }
        let read = Instant::now();
        let live = price_list::on_demand(&self.clients).await?;
        let mut state = self.lock();
        state.view.on_demand = state.view.on_demand.with_live(live, read);
        Ok(())
    }

    /// Reads spot prices. A failed read changes nothing.
    /// # Errors
    /// A call failed, or there is no price at all.
    pub(crate) async fn update_spot(&self) -> Result<(), PriceError> {
        let read = Instant::now();
        let by_type = Arc::new(spot_prices::read(&self.clients).await?);
        self.lock().view.spot = Some(SpotPrices { by_type, read });
        Ok(())
    }

    /// The work that keeps prices current.
    pub(crate) fn workers(self: &Arc<Self>) -> Vec<ProviderWorker> {
        let mut workers = vec![ProviderWorker {
            name: "spot-prices",
            run: Box::pin(Arc::clone(self).keep(PriceKind::Spot)),
        }];
        if self.has_price_list {
            workers.push(ProviderWorker {
                name: "on-demand-prices",
                run: Box::pin(Arc::clone(self).keep(PriceKind::OnDemand)),
            });
        } else {
            let source = self.lock().view.on_demand.source().clone();
            tracing::warn!(
                "on-demand prices {source}: the price list is not asked in region {} or from an isolated VPC",
                self.clients.region
            );
        }
        workers
    }

    /// Reads at once, and again indefinitely.
    async fn keep(self: Arc<Self>, kind: PriceKind) {
        self.lock().first_reads += 1;
        let (mut pause, mut is_first) = (RETRY, true);
        loop {
            let read = match kind {
                PriceKind::OnDemand => self.update_on_demand().await,
                PriceKind::Spot => self.update_spot().await,
            };
            if std::mem::take(&mut is_first) {
                self.lock().first_reads -= 1;
            }
            let wait = match read {
                Ok(()) => {
                    tracing::info!(kind = kind.name(), "updated prices");
                    pause = RETRY;
                    kind.period()
                }
                Err(error) => {
                    let wait = pause;
                    pause = MAX_RETRY.min(pause * 2);
                    self.warn(kind, &error, wait);
                    wait
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Says what stays in use after a failed read.
    fn warn(&self, kind: PriceKind, error: &PriceError, wait: Duration) {
        let state = self.state(std::iter::empty());
        let source = match kind {
            PriceKind::OnDemand => state.on_demand,
            PriceKind::Spot => state.spot,
        };
        let age = source.age(Timestamp::now());
        let old = age.is_none_or(|age| age >= OLD);
        tracing::warn!(%error, old, retry_s = wait.as_secs(), "failed to update {0} prices; {0} prices {source}", kind.name());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a region's prices are in a price list that can be asked there.
/// # Source
/// The reference implementation leaves out us-gov; the isolated partitions have no price list endpoint either.
fn has_price_list(region: &str) -> bool {
    !region.starts_with("us-gov") && !region.contains("-iso")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;
    use crate::facts::api::wire::{ApiCall, ApiError};
    use crate::facts::api::{self, Answers};

    /// AWS with one product and one spot price, or without a connection.
    #[derive(Debug, Default)]
    struct Cloud {
        is_down: AtomicUsize,
        on_demand: AtomicUsize,
        spot: AtomicUsize,
        products: Mutex<Vec<Value>>,
        is_endless: bool,
    }

    impl Cloud {
        fn calls(&self) -> (usize, usize) {
            (
                self.on_demand.load(Ordering::Relaxed),
                self.spot.load(Ordering::Relaxed),
            )
        }
    }

    impl Answers for Cloud {
        fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
            let is_spot = call.op == "DescribeSpotPriceHistory";
            let count = if is_spot { &self.spot } else { &self.on_demand };
            count.fetch_add(1, Ordering::Relaxed);
            if self.is_down.load(Ordering::Relaxed) > 0 {
                return Err(ApiError::Transport("down".to_owned()));
            }
            if is_spot {
                return Ok(json!({ "SpotPriceHistory": [
                    { "InstanceType": "m5.large", "AvailabilityZone": "a", "SpotPrice": "0.03", "Timestamp": "2026-01-01T00:00:00Z" },
                ] }));
            }
            let products = self.products.lock().unwrap();
            let products: Vec<String> = products.iter().map(Value::to_string).collect();
            let mut answer = json!({ "PriceList": products });
            if self.is_endless {
                answer["NextToken"] = json!("more");
            }
            Ok(answer)
        }
    }

    fn product(name: &str, currency: &str, amount: &str) -> Value {
        json!({ "product": { "attributes": { "instanceType": name } }, "terms": { "OnDemand": { "t": {
            "priceDimensions": { "d": { "pricePerUnit": { currency: amount } } } } } } })
    }

    fn in_region(region: &str, isolated: bool, cloud: Cloud) -> (Arc<Cloud>, Arc<Prices>) {
        let cloud = Arc::new(cloud);
        let mut clients = api::clients(Arc::clone(&cloud) as Arc<_>);
        region.clone_into(&mut clients.region);
        let start = OnDemandPrices::at_start(region, None).unwrap();
        let prices = Prices::with(Arc::new(clients), isolated, start);
        (cloud, Arc::new(prices))
    }

    fn priced() -> Cloud {
        Cloud {
            products: Mutex::new(vec![product("m5.large", "USD", "0.2")]),
            ..Cloud::default()
        }
    }

    fn start(prices: &Arc<Prices>) {
        for worker in prices.workers() {
            tokio::spawn(worker.run);
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn the_first_prices_come_at_once_and_the_next_in_time() {
        let (cloud, prices) = in_region("eu-west-1", false, priced());
        assert!(!prices.awaits_first(), "no worker runs");
        let before = prices.view();
        assert_eq!(
            before.spot("m5.large", "b"),
            Some(MicroUsd(107_000)),
            "on demand stands for it"
        );
        start(&prices);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(cloud.calls(), (2, 1));
        assert!(!prices.awaits_first());
        let view = prices.view();
        assert_eq!(view.on_demand("m5.large"), Some(MicroUsd(200_000)));
        assert_eq!(view.spot("m5.large", "a"), Some(MicroUsd(30_000)));
        assert_eq!(
            view.spot("m5.large", "b"),
            None,
            "no spot instance is sold there"
        );
        tokio::time::sleep(SPOT_PERIOD * 12 + MINUTE).await;
        assert_eq!(cloud.calls(), (4, 13));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_reads_keep_what_is_known_and_are_tried_again_less_and_less_often() {
        let (cloud, prices) = in_region("eu-west-1", false, priced());
        cloud.is_down.store(1, Ordering::Relaxed);
        start(&prices);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            !prices.awaits_first(),
            "no caller waits for a service that is down"
        );
        assert_eq!(prices.view().on_demand("m5.large"), Some(MicroUsd(107_000)));
        // After 1, 2, 4, 8 minutes, then every 15.
        tokio::time::sleep(MINUTE * 15).await;
        assert_eq!(cloud.calls().1, 5);
        tokio::time::sleep(MINUTE * 60).await;
        assert_eq!(cloud.calls().1, 9);
        cloud.is_down.store(0, Ordering::Relaxed);
        tokio::time::sleep(MINUTE * 15).await;
        assert_eq!(prices.view().spot("m5.large", "a"), Some(MicroUsd(30_000)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_price_list_is_not_asked_where_there_is_none() {
        for (region, isolated) in [
            ("us-gov-west-1", false),
            ("us-iso-east-1", false),
            ("eu-west-1", true),
        ] {
            let (cloud, prices) = in_region(region, isolated, priced());
            start(&prices);
            prices.update_on_demand().await.unwrap();
            tokio::time::sleep(MINUTE).await;
            assert_eq!(cloud.calls(), (0, 1), "{region}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn prices_are_read_in_the_currency_of_the_region() {
        let both = || Cloud {
            products: Mutex::new(vec![
                product("m5.large", "CNY", "1.5"),
                product("c5.large", "USD", "0.1"),
            ]),
            ..Cloud::default()
        };
        let (_, prices) = in_region("cn-northwest-1", false, both());
        prices.update_on_demand().await.unwrap();
        let view = prices.view();
        assert_eq!(view.on_demand("m5.large"), Some(MicroUsd(1_500_000)));
        assert_eq!(view.on_demand("c5.large"), None, "dollars are not yuan");
        let (_, prices) = in_region("eu-west-1", false, both());
        prices.update_on_demand().await.unwrap();
        assert_eq!(prices.view().on_demand("m5.large"), Some(MicroUsd(107_000)));
        assert_eq!(prices.view().on_demand("c5.large"), Some(MicroUsd(100_000)));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_without_a_price_or_without_an_end_are_errors() {
        let (_, prices) = in_region("eu-west-1", false, Cloud::default());
        assert_eq!(prices.update_on_demand().await, Err(PriceError::NoOnDemand));
        let endless = Cloud {
            is_endless: true,
            ..priced()
        };
        let (_, prices) = in_region("eu-west-1", false, endless);
        let error = prices.update_on_demand().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "pricing:GetProducts: more than 300 pages"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn age_and_source_are_told() {
        let now = "2025-05-29T00:00:00Z".parse().unwrap();
        let (_, prices) = in_region("eu-west-1", false, priced());
        let sold = [
            Arc::from("m5.large"),
            Arc::from("zz.one"),
            Arc::from("zz.two"),
        ];
        let state = prices.state(sold.iter());
        assert_eq!(
            state.note(now).unwrap(),
            "on-demand prices are those of 2025-05-28 that come with the program; spot prices are not known: on-demand prices stand for them; no price is known for zz.one and 1 more, offered after all types with a price"
        );
        let gauges = state.gauges(now);
        let gauges = gauges
            .iter()
            .map(|gauge| (gauge.name, gauge.labels.clone(), gauge.value));
        let on_demand = |source| vec![("capacity_type", "on-demand"), ("source", source)];
        assert_eq!(
            gauges.collect::<Vec<_>>(),
            [
                (GaugeName::PriceAge, on_demand("embedded"), 86_400.0),
                (GaugeName::UnpricedInstanceTypes, Vec::new(), 2.0),
            ]
        );
        start(&prices);
        tokio::time::sleep(MINUTE).await;
        let fresh = prices.state(sold[..1].iter());
        assert_eq!(fresh.note(now), None, "all prices are live and new");
        assert_eq!(fresh.gauges(now).len(), 3);
    }
}
