use super::*;
use crate::import::Order;
use jiff::tz::TimeZone;

fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
    rows.iter().map(|row| row.iter().map(|field| (*field).to_owned()).collect()).collect()
}

fn decide(
    header: &[&str],
    values: &[&[&str]],
    chosen: &[(&str, Option<&str>)],
    configured: &str,
) -> Result<Columns, ColumnsError> {
    let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
    let chosen: Vec<_> = chosen
        .iter()
        .map(|(name, target)| ((*name).to_owned(), target.map(|t| Target::parse(t).unwrap())))
        .collect();
    let text = format!(
        "[[source]]\nname = \"s\"\nkind = \"json\"\nurl_token = \"t\"\n[source.fields]\n{configured}"
    );
    let config = crate::config::Config::parse(&text).unwrap().config;
    Columns::decide(&header, &rows(values), &chosen, &config.sources[0].fields)
}

fn fills(columns: &Columns) -> Vec<String> {
    columns.all.iter().map(|column| column.fills.join("+")).collect()
}

fn lead(
    columns: &mut Columns,
    fields: &[&str],
) -> Result<crate::lead::LeadPatch, (String, &'static str)> {
    let fields: Vec<Cow<'_, str>> = fields.iter().map(|field| Cow::Borrowed(*field)).collect();
    let times = Times { order: Some(Order::DayFirst), zone: TimeZone::UTC };
    let read = columns.lead(&fields, &times, &mapping::Settings::default());
    read.map(|(patch, _)| patch).map_err(|fault| (fault.column, fault.word))
}

#[test]
fn exports_of_many_programs() {
    for (header, values, wanted) in [
        (
            &[
                "Record ID",
                "First Name",
                "Last Name",
                "Email",
                "Phone Number",
                "Lead Status",
                "Create Date",
                "Last Modified Date",
            ][..],
            &[
                "51",
                "Ana",
                "Lima",
                "ana@example.com",
                "+5511912345678",
                "Open",
                "2026-03-05 14:22",
                "2026-03-06 10:00",
            ][..],
            &[
                "attributes.record_id",
                "first_name",
                "last_name",
                "email",
                "phone",
                "attributes.lead_status",
                "attributes.create_date",
                "occurred_at",
            ][..],
        ),
        (
            &["Email Address", "OPTIN_TIME", "OPTIN_IP", "TAGS", "Newsletter"],
            &["a@example.com", "2026-03-05 14:22:10", "192.0.2.1", "\"vip\",\"expo\"", "yes"],
            &["email", "occurred_at", "attributes.optin_ip", "tags", "marketing_consent"],
        ),
        (
            &["Nome completo", "E-mail", "Celular", "Data de cadastro", "Orçamento (R$)", "UF", ""],
            &["Ana Lima", "a@example.com", "11 91234-5678", "05/03/2026", "10k", "SP", "x"],
            &["full_name", "email", "phone", "occurred_at", "attributes.orçamento_r", "region", ""],
        ),
        (
            &["Name", "Firma", "E-Mail-Adresse", "Einwilligung", "Erstellt am", "Datum"],
            &["Ana", "Lima GmbH", "a@example.com", "vielleicht", "05.03.2026", "keins"],
            &[
                "full_name",
                "company",
                "email",
                "attributes.einwilligung",
                "occurred_at",
                "attributes.datum",
            ],
        ),
        // A name that says nothing, and one that lies.
        (&["Contact", "Mail"], &["a@example.com", "by post"], &["email", "attributes.mail"]),
        (
            &["email", "occurred_at", "attributes.x", "tags"],
            &["a@b.example", "1772720530", "1", "a"],
            &["email", "occurred_at", "attributes.x", "tags"],
        ),
    ] {
        let columns = decide(header, &[values], &[], "").unwrap();
        assert_eq!(fills(&columns), wanted, "{header:?}");
    }
}

#[test]
fn somebody_knows_better() {
    let header = ["Email", "Phone", "Phone", "Ramo", "Private mail"];
    let values: &[&[&str]] = &[&["w@example.com", "1", "2", "IT", "p@example.com"]];
    let chosen =
        [("private MAIL", Some("email")), ("#3", None), ("Ramo", Some("attributes.industry"))];
    let columns = decide(&header, values, &chosen, "").unwrap();
    // The target is spoken for, so the column of its name is like any other.
    assert_eq!(fills(&columns), ["attributes.email", "phone", "", "attributes.industry", "email"]);
    for (name, told) in
        [("Fone", "did you mean \"Phone\"?"), ("Phone", "2 columns"), ("#9", "columns are Email")]
    {
        let error = decide(&header, values, &[(name, None)], "").err().unwrap();
        assert!(error.to_string().contains(told), "{error}");
    }
    let error = decide(&["Name"], &[&["Ana"]], &[], "").err().unwrap();
    assert!(error.to_string().contains("--map 'COLUMN=email'"), "{error}");
}

#[test]
fn the_configuration_speaks_of_columns() {
    let configured = r#"
        company = ["$.Firma", "$['Name of company']"]
        first_name = { from = "$.Who", via = "first_word" }
        lifecycle_stage = { value = "customer" }
        city = "$.body.deep.city"
    "#;
    let header = ["Mail", "Firma", "Name of company", "Who", "City"];
    let values: &[&[&str]] = &[&["a@example.com", "", "Lima", "Ana da Silva", "Porto"]];
    let mut columns = decide(&header, values, &[], configured).unwrap();
    assert_eq!(fills(&columns), ["email", "company", "company", "first_name", "city"]);
    let patch = lead(&mut columns, values[0]).unwrap();
    let value = |field: &str| {
        patch.fields[&crate::lead::Field::parse(field).unwrap()].value().unwrap().to_owned()
    };
    assert_eq!(value("company"), "Lima");
    assert_eq!(value("first_name"), "Ana");
    assert_eq!(value("lifecycle_stage"), "customer");
    assert_eq!(value("city"), "Porto");
}

#[test]
fn odd_names_of_columns() {
    let header = ["it's \"odd\" \\ ", "a.b[0]", "Email", "email", "$"];
    let values: &[&[&str]] = &[&["1", "2", "", "a@example.com", "3"]];
    let mut columns = decide(&header, values, &[], "").unwrap();
    let patch = lead(&mut columns, values[0]).unwrap();
    assert_eq!(patch.email.as_str(), "a@example.com", "the first that is not blank");
    assert_eq!(patch.attributes.keys().collect::<Vec<_>>(), ["a_b_0", "it_s_odd"]);
}

#[test]
fn faults_name_their_column() {
    let header = ["Mail", "When", "Phone"];
    let values: &[&[&str]] = &[&["a@example.com", "2026-03-05", "x"]];
    let chosen = [("When", Some("occurred_at"))];
    let mut columns = decide(&header, values, &chosen, "").unwrap();
    assert_eq!(lead(&mut columns, &["", "2026-03-05", ""]), Err(("Mail".into(), "no_email")));
    assert_eq!(lead(&mut columns, &["nobody", "", ""]), Err(("Mail".into(), "invalid_email")));
    assert_eq!(
        lead(&mut columns, &["a@example.com", "soon", ""]),
        Err(("When".into(), "invalid_time"))
    );
    let patch = lead(&mut columns, &["a@example.com", " ", "call me"]).unwrap();
    assert_eq!(patch.occurred_at, None);
    assert_eq!(patch.field_errors.keys().collect::<Vec<_>>(), ["phone"]);
}
