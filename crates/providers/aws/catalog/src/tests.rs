use super::*;
use crate::ami_family::AmiFamily;
use crate::node_settings::NodeSettings;

const HEADER: &str = "{\"mortiseCatalog\":1,\"kind\":\"types\"}\n";
const GOOD: &str = r#"{"type":"m5.large","arch":["x86_64"],"vcpus":2,"memoryMiB":8192,"usage":["on-demand","spot"],"virtualization":["hvm"],"hypervisor":"nitro","ipv4PerInterface":10,"interfaces":[3],"zones":{"us-east-1":["us-east-1a"]}}"#;

#[track_caller]
fn refused(line: &str, expected: &str) {
    let error = Ec2Catalog::parse("my.jsonl", format!("{HEADER}{line}\n").as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn embedded_data_is_whole() {
    let catalog = embedded_catalog().unwrap();
    assert_eq!(catalog.rows().len(), 1395);
    assert_eq!(
        catalog.regions().into_iter().collect::<Vec<_>>(),
        ["eu-west-1", "us-east-1", "us-west-2"]
    );
    assert_eq!(catalog.zones("us-east-1").len(), 6);
    assert_eq!(
        catalog
            .tables("c7g-flex.2xlarge")
            .map(|tables| tables.branch_interfaces),
        Some(18),
        "known by the tables only"
    );
    assert!(catalog.find("c7g-flex.2xlarge").is_none());
}

/// A price of the embedded tables, with the day.
fn price(region: &str, name: &str) -> Option<(i64, String)> {
    let table = price_table(region).unwrap()?;
    assert_eq!(*table.region, *region);
    let price = table.by_type.get(name)?;
    Some((price.0, table.as_of.to_string()))
}

#[test]
fn prices_are_those_of_the_region() {
    let dated = |amount, day: &str| Some((amount, day.to_owned()));
    assert_eq!(price("us-east-1", "m5.large"), dated(96_000, "2026-07-20"));
    assert_eq!(price("eu-west-1", "m5.large"), dated(107_000, "2025-05-28"));
    assert_eq!(
        price("us-gov-west-1", "m5.large"),
        dated(121_000, "2026-07-20")
    );
    // Yuan.
    assert_eq!(
        price("cn-north-1", "m5.large"),
        dated(1_013_000, "2024-11-06")
    );
    assert_eq!(
        price("cn-northwest-1", "m5.large"),
        None,
        "no table is known"
    );
    assert_eq!(price("eu-west-1", "x9z.large"), None);
}

#[test]
fn every_table_is_whole() {
    let regions = price_regions().unwrap();
    assert!(regions.is_sorted() && regions.len() == 35, "{regions:?}");
    for region in &regions {
        let table = price_table(region).unwrap().unwrap();
        assert_eq!(table.currency, Currency::of_region(region));
        assert!(
            table.by_type.len() > 150,
            "{region} has {}",
            table.by_type.len()
        );
        // The most expensive instance costs a few hundred an hour, the cheapest a fraction of a cent.
        let plausible = |price: &MicroUsd| (1_000..2_000_000_000).contains(&price.0);
        assert!(table.by_type.values().all(plausible), "{region}");
    }
}

#[test]
fn embedded_types_have_names_zones_and_prices() {
    let types = embedded("us-east-1", &["us-east-1a", "us-east-1b"]).unwrap();
    assert!(types.len() > 1_300, "{} types", types.len());
    assert!(types.is_sorted_by(|a, b| a.name < b.name));
    let large = types.iter().find(|each| &*each.name == "m5.large").unwrap();
    assert_eq!(large.offerings.len(), 4, "two zones, on demand and spot");
    for offering in &large.offerings {
        let price = offering.price.unwrap().0;
        match offering.capacity_type {
            mortise_cloudprovider::CapacityType::OnDemand => assert_eq!(price, 96_000),
            _ => assert!((28_800..=67_200).contains(&price), "{price}"),
        }
    }
    assert_eq!(
        types,
        embedded("us-east-1", &["us-east-1b", "us-east-1a"]).unwrap(),
        "the order of the zones does not matter"
    );
}

#[test]
fn a_type_without_a_price_is_offered_on_demand_alone() {
    let catalog = embedded_catalog().unwrap();
    let place = |on_demand, spot| ZonePrices {
        zone: Arc::from("us-east-1a"),
        zone_id: None,
        on_demand,
        spot,
    };
    let offered = |prices: ZonePrices| {
        let zones = LaunchZones {
            region: Arc::from("us-east-1"),
            places: vec![prices],
            ..LaunchZones::default()
        };
        let row = catalog.find("m5.large").unwrap();
        let each = row.info.instance_type(&NodeSettings::default(), &zones);
        let offerings = each.offerings.into_iter().filter(|offer| offer.available);
        offerings
            .map(|offer| {
                (
                    offer.capacity_type.as_str(),
                    offer.price.map(|price| price.0),
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(offered(place(None, None)), [("on-demand", None)]);
    let both = place(Some(MicroUsd(2)), Some(MicroUsd(1)));
    let both = offered(both);
    assert_eq!(both.len(), 2);
    assert!(both.contains(&("spot", Some(1))) && both.contains(&("on-demand", Some(2))));
    assert_eq!(
        offered(place(Some(MicroUsd(2)), None)),
        [("on-demand", Some(2))],
        "no spot instance is sold there"
    );
}

#[test]
fn spot_fraction_is_fixed() {
    let price = assumed_spot_price("m5.large", "us-east-1a", MicroUsd(96_000));
    assert_eq!(
        price,
        assumed_spot_price("m5.large", "us-east-1a", MicroUsd(96_000))
    );
    for row in embedded_catalog().unwrap().rows() {
        let spot = assumed_spot_price(&row.info.name, "us-east-1a", MicroUsd(1_000_000)).0;
        assert!(
            (300_000..=700_000).contains(&spot),
            "{}: {spot}",
            row.info.name
        );
    }
}

#[test]
fn unknown_places_are_named() {
    assert_eq!(
        embedded("us-east-9", &[]).unwrap_err().to_string(),
        "instance type catalog instance-types.jsonl.gz (embedded): no zones are known for region \"us-east-9\"; known: eu-west-1, us-east-1, us-west-2"
    );
    assert_eq!(
        embedded("eu-west-1", &["eu-west-1x"])
            .unwrap_err()
            .to_string(),
        "instance type catalog instance-types.jsonl.gz (embedded): zone \"eu-west-1x\" is not in region eu-west-1; its zones: eu-west-1a, eu-west-1b, eu-west-1c; did you mean \"eu-west-1a\"?"
    );
}

#[test]
fn a_good_line_is_read() {
    let catalog = Ec2Catalog::parse("my.jsonl", format!("{HEADER}\n{GOOD}\n").as_bytes()).unwrap();
    let row = catalog.find("m5.large").unwrap();
    assert_eq!(
        (row.info.vcpus, row.info.memory_mib, row.info.ebs_mbps),
        (2, 8192, None)
    );
    assert_eq!(catalog.instance_types("us-east-1", &[]).unwrap().len(), 1);
}

#[test]
fn malformed_files_are_refused_with_the_place() {
    refused(
        &GOOD.replace("8192", "\"8 GiB\""),
        "instance type catalog my.jsonl, line 2, type \"m5.large\", field `memoryMiB`: expected a whole number of at least 1; got \"8 GiB\"",
    );
    refused(
        &GOOD.replace("\"vcpus\":2,", ""),
        "instance type catalog my.jsonl, line 2, type \"m5.large\", field `vcpus`: expected a whole number of at least 1; it is missing",
    );
    refused(
        &GOOD.replace("memoryMiB", "memoryMib"),
        "instance type catalog my.jsonl, line 2, type \"m5.large\", field `memoryMib`: this field is not known; did you mean `memoryMiB`?",
    );
    refused(
        &GOOD.replace("\"interfaces\":[3]", "\"interfaces\":[3],\"gpus\":[{\"name\":\"L4\",\"manufacturer\":\"NVIDIA\",\"count\":-1,\"memoryMiB\":1}]"),
        "instance type catalog my.jsonl, line 2, type \"m5.large\", field `gpus[0].count`: expected a whole number of at least 0; got -1",
    );
    refused(
        &GOOD.replace("m5.large", "m5 large"),
        "instance type catalog my.jsonl, line 2, type \"m5 large\", field `type`: expected letters, digits, dots and dashes, such as \"m5.large\"; got \"m5 large\"",
    );
    refused(
        "{\"type\":",
        "instance type catalog my.jsonl, line 2, column 8: not valid JSON: EOF while parsing a value",
    );
    refused(
        "[1]",
        "instance type catalog my.jsonl, line 2, column 1: expected one JSON object per line, got [1]",
    );
    refused(
        &format!("{GOOD}\n{GOOD}"),
        "instance type catalog my.jsonl: type \"m5.large\" has more than one line",
    );
}

#[test]
fn files_that_are_no_catalogue_are_refused() {
    let message = |bytes: &[u8]| {
        Ec2Catalog::parse("my.jsonl", bytes)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message(b""),
        "instance type catalog my.jsonl, line 1, column 1: the file is empty; expected a first line {\"mortiseCatalog\":1,\"kind\":\"types\"}"
    );
    assert_eq!(
        message(b"{\"InstanceTypes\":[]}"),
        "instance type catalog my.jsonl, line 1, field `mortiseCatalog`: expected a whole number of at least 0; it is missing"
    );
    assert_eq!(
        message(b"{\"mortiseCatalog\":2,\"kind\":\"types\"}"),
        "instance type catalog my.jsonl, line 1, field `mortiseCatalog`: expected the number 1: the file's first line names its format; got 2"
    );
    assert!(
        message(b"\xff\xfe")
            .starts_with("instance type catalog my.jsonl: is not UTF-8 text at byte 0")
    );
    assert!(
        message(b"\x1f\x8b\x08garbage")
            .starts_with("instance type catalog my.jsonl: cannot be unpacked (gzip)")
    );
    let missing = from_file(Path::new("/nonexistent/types.jsonl"))
        .unwrap_err()
        .to_string();
    assert!(
        missing.starts_with("instance type catalog /nonexistent/types.jsonl: cannot be read: "),
        "{missing}"
    );
}

/// Resident memory of the process in bytes, where the system says it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Prints how long all types of a region take to be resolved, and what they weigh.
#[test]
fn a_region_is_resolved_quickly_and_is_small() {
    let catalog = embedded_catalog().unwrap();
    let first = catalog.instance_types("us-east-1", &[]).unwrap();
    let begin = std::time::Instant::now();
    let before = resident();
    let copies: Vec<_> = (0..8)
        .map(|_| catalog.instance_types("us-east-1", &[]).unwrap())
        .collect();
    let each = begin.elapsed() / 8;
    let grown = resident()
        .zip(before)
        .map(|(now, before)| (now - before) / 8 / 1024);
    let before = resident();
    let clones: Vec<_> = copies.clone();
    let cloned = resident()
        .zip(before)
        .map(|(now, before)| (now - before) / 8 / 1024);
    println!(
        "{} types in 6 zones: {each:?} and {grown:?} KiB, a copy {cloned:?} KiB, {} bytes a requirement",
        first.len(),
        size_of::<mortise_apis::requirements::Requirement>()
    );
    assert_eq!(clones.len(), 8);
    assert!(grown.is_none_or(|kib| kib < 12 * 1024), "{grown:?} KiB");
}

#[test]
fn with_prefix_delegation_nitro_types_have_the_pods_of_the_calculator() {
    let catalog = embedded_catalog().unwrap();
    let pods = |name: &str, reserved_enis, change: &dyn Fn(&mut NodeSettings)| {
        let mut settings = NodeSettings {
            options: CapacityOptions {
                reserved_enis,
                prefix_delegation: true,
                ..CapacityOptions::default()
            },
            ..NodeSettings::default()
        };
        change(&mut settings);
        catalog.find(name).unwrap().info.pods(&settings)
    };
    let as_is = |_: &mut NodeSettings| {};
    for (name, reserved, wanted) in [
        ("t3.nano", 0, 34),
        ("t3.nano", 1, 18),
        ("t3.nano", 2, 0),
        ("m5.large", 0, 110),
        ("c5.4xlarge", 0, 110),
        ("m5.8xlarge", 0, 250),
        ("m5.24xlarge", 1, 250),
        ("m4.large", 0, 20), // Xen
    ] {
        assert_eq!(pods(name, reserved, &as_is), wanted, "{name} {reserved}");
    }
    let set = |settings: &mut NodeSettings| settings.max_pods = Some(300);
    assert_eq!(pods("m5.large", 0, &set), 300, "the class decides");
    let windows = |settings: &mut NodeSettings| settings.family = AmiFamily::Windows2022;
    assert_eq!(pods("t3.nano", 0, &windows), 110);
}
