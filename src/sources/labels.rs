//! Questions and labels as people write them, in the languages forms come in.
//!
//! A kind whose fields are named by the form's author collects what it recognises under `@found`;
//! [`RULES`] read from there. Only whole labels are recognised, never words inside a question.

use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization;

use crate::lead::{Field, consent, text};
use crate::mapping::{Rule, Target, Via, rule, rule_via};

/// Where a kind's `prepare` leaves what it recognised.
const FOUND: &str = "@found";

/// Most members of one object that are looked at: as many as a form may have.
const MAX_LABELS: usize = 1000;

/// What was recognised, by the target's name.
pub(super) const RULES: &[Rule] = &[
    rule(Target::Email, &["$['@found'].email"]),
    rule(Target::Field(Field::FirstName), &["$['@found'].first_name"]),
    rule(Target::Field(Field::LastName), &["$['@found'].last_name"]),
    rule(Target::Field(Field::FullName), &["$['@found'].full_name"]),
    rule(Target::Field(Field::Phone), &["$['@found'].phone"]),
    rule(Target::Field(Field::Company), &["$['@found'].company"]),
    rule(Target::Field(Field::JobTitle), &["$['@found'].job_title"]),
    rule(Target::Field(Field::Website), &["$['@found'].website"]),
    rule(Target::Field(Field::City), &["$['@found'].city"]),
    rule(Target::Field(Field::Region), &["$['@found'].region"]),
    rule(Target::Field(Field::Country), &["$['@found'].country"]),
    rule(Target::Field(Field::Language), &["$['@found'].language"]),
    rule(Target::Field(Field::Message), &["$['@found'].message"]),
    rule(Target::MarketingConsent, &["$['@found'].marketing_consent"]),
    rule(Target::LandingPage, &["$['@found'].landing_page"]),
    rule(Target::UtmSource, &["$['@found'].utm_source"]),
    rule(Target::UtmMedium, &["$['@found'].utm_medium"]),
    rule(Target::UtmCampaign, &["$['@found'].utm_campaign"]),
    rule(Target::UtmTerm, &["$['@found'].utm_term"]),
    rule(Target::UtmContent, &["$['@found'].utm_content"]),
    rule_via(Target::UtmSource, &["$['@found'].landing_page"], Via::Utm),
    rule_via(Target::UtmMedium, &["$['@found'].landing_page"], Via::Utm),
    rule_via(Target::UtmCampaign, &["$['@found'].landing_page"], Via::Utm),
    rule_via(Target::UtmTerm, &["$['@found'].landing_page"], Via::Utm),
    rule_via(Target::UtmContent, &["$['@found'].landing_page"], Via::Utm),
];

/// Labels by target: lower case, without marks, blanks and punctuation ("E-mail" is `email`).
#[rustfmt::skip]
const LABELS: &[(&str, &[&str])] = &[
    ("email", &[
        "email", "mail", "emailaddress", "mailaddress", "enderecodeemail", "direccionemail",
        "correo", "correoelectronico", "emailadresse", "mailadresse", "adresseemail", "adressemail",
        "courriel", "indirizzoemail", "emailadres", "epost", "adresemail", "workemail",
        "businessemail", "emailcorporativo",
    ]),
    ("first_name", &[
        "firstname", "first", "givenname", "forename", "primeironome", "prenome", "nombredepila",
        "primernombre", "vorname", "prenom", "voornaam", "fornamn", "imie", "fname",
    ]),
    ("last_name", &[
        "lastname", "last", "surname", "familyname", "sobrenome", "ultimonome", "apellido",
        "apellidos", "nachname", "familienname", "nomdefamille", "cognome", "achternaam",
        "efternamn", "nazwisko", "lname",
    ]),
    ("full_name", &[
        "name", "fullname", "nome", "nomecompleto", "nombre", "nombrecompleto", "nombreyapellido",
        "vollstandigername", "vorundnachname", "nom", "nomcomplet", "nometeprenom", "nomecognome",
        "nomeecognome", "nomesobrenome", "nomeesobrenome", "naam", "namn", "imieinazwisko",
        "yourname", "contactname",
    ]),
    ("phone", &[
        "phone", "phonenumber", "telephone", "telephonenumber", "tel", "mobile", "mobilephone",
        "mobilenumber", "cellphone", "cell", "whatsapp", "telefone", "celular", "fone",
        "telefonecelular", "numerodetelefone", "telefono", "numerodetelefono", "movil", "telefon",
        "telefonnummer", "telemovel", "handy", "handynummer", "mobilnummer", "numerodetelephone", "portable",
        "cellulare", "telefoon", "telefoonnummer", "workphone", "textremindernumber",
    ]),
    ("company", &[
        "company", "companyname", "organization", "organisation", "organizationname", "business",
        "businessname", "empresa", "nomedaempresa", "nombredelaempresa", "firma", "firmenname",
        "unternehmen", "entreprise", "societe", "azienda", "nomeazienda", "bedrijf", "bedrijfsnaam",
        "foretag", "org",
    ]),
    ("job_title", &[
        "jobtitle", "job", "role", "jobrole", "position", "cargo", "funcao", "puesto", "beruf",
        "stellung", "berufsbezeichnung", "poste", "fonction", "ruolo", "functie", "occupation",
    ]),
    ("website", &[
        "website", "websiteurl", "companywebsite", "homepage", "site", "sitedaempresa", "sitioweb",
        "webseite", "siteweb", "sitoweb", "web",
    ]),
    ("city", &["city", "town", "cidade", "ciudad", "stadt", "ort", "ville", "citta", "stad"]),
    ("region", &[
        "region", "state", "province", "stateprovince", "estado", "uf", "provincia", "bundesland",
    ]),
    ("country", &["country", "pais", "land", "pays", "paese"]),
    ("language", &["language", "idioma", "sprache", "langue", "lingua", "preferredlanguage"]),
    ("message", &[
        "message", "comment", "comments", "mensagem", "comentario", "comentarios", "observacoes",
        "observacao", "mensaje", "nachricht", "ihrenachricht", "kommentar", "messaggio", "bericht",
        "meddelande", "notes", "howcanwehelp", "howcanwehelpyou",
    ]),
    ("landing_page", &[
        "landingpage", "landingpageurl", "pageurl", "urldapagina", "urldelapagina", "seitenurl",
        "urldelapage", "urldellapagina", "sourceurl",
    ]),
    ("marketing_consent", &["newsletter", "acceptance"]),
    ("utm_source", &["utmsource"]),
    ("utm_medium", &["utmmedium"]),
    ("utm_campaign", &["utmcampaign"]),
    ("utm_term", &["utmterm"]),
    ("utm_content", &["utmcontent"]),
];

/// Beginnings of labels of boxes to tick.
#[rustfmt::skip]
const CONSENT: &[&str] = &[
    "consent", "marketingconsent", "optin", "emailoptin", "iagree", "iconsent", "iaccept",
    "yesiagree", "agreeto", "acceptterms", "consentimento", "aceito", "concordo", "autorizo",
    "consentimiento", "acepto", "estoydeacuerdo", "einwilligung", "ichstimme", "ichwillige",
    "ichbineinverstanden", "jaccepte", "consentement", "consenso", "accetto", "akkoord", "gdpr",
    "lgpd", "dsgvo",
];

/// Words before a label that change nothing about what it asks for.
const BEFORE: &[&str] = &[
    "your", "the", "seu", "sua", "tu", "su", "ihr", "ihre", "votre", "il", "tuo", "je", "uw",
    "work", "business",
];

/// The name of the target a label asks for.
pub fn recognise(label: &str) -> Option<&'static str> {
    // Longer texts are questions, and a question may ask anything.
    if label.len() > 200 {
        return None;
    }
    let words = words(label);
    let by_name = |words: &[String]| {
        let joined = words.concat();
        LABELS
            .iter()
            .find(|(_, labels)| labels.contains(&joined.as_str()))
            .map(|(target, _)| *target)
    };
    by_name(&words)
        .or_else(|| {
            let skip = words.iter().take_while(|word| BEFORE.contains(&word.as_str())).count();
            words.get(skip..).filter(|_| skip > 0).and_then(by_name)
        })
        .or_else(|| is_consent(&words).then_some("marketing_consent"))
}

/// A label's letters alone, as labels are compared: lower case, without marks, blanks and punctuation.
pub fn letters(label: &str) -> String {
    words(label).concat()
}

fn is_consent(words: &[String]) -> bool {
    let joined = words.concat();
    CONSENT.iter().any(|beginning| joined.starts_with(beginning))
}

/// Lower-case words without marks; `camelCase` is two, digits and brackets' content are none.
fn words(label: &str) -> Vec<String> {
    let label = label.split(['(', '[', '*', ':', '?']).next().unwrap_or_default();
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in label.nfd() {
        if unicode_normalization::char::is_combining_mark(c) || matches!(c, '\'' | '’') {
            continue;
        }
        if !c.is_alphabetic() || (after_lower && c.is_uppercase()) {
            words.push(String::new());
        }
        if c.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            if c == 'ß' { word.push_str("ss") } else { word.extend(c.to_lowercase()) }
        }
        after_lower = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a value is what test tools of ad networks fill in for an answer.
pub(super) fn is_placeholder(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.trim_start().starts_with("<test lead: dummy data"))
}

/// What a kind recognised; the first non-blank value of a target stays.
#[derive(Default)]
pub(super) struct Found(Map<String, Value>);

impl Found {
    /// Keeps the value under the target's name.
    pub(super) fn put(&mut self, target: &'static str, value: &Value) {
        let value = match value {
            // Of a list, what is not blank; one of them alone is a value.
            Value::Array(list) => {
                let blank =
                    |value: &Value| value.is_null() || value.as_str().is_some_and(text::is_blank);
                let list: Vec<&Value> = list.iter().filter(|value| !blank(value)).collect();
                match list.as_slice() {
                    [] => return,
                    [one] if !one.is_array() => return self.put(target, one),
                    several => Value::Array(several.iter().map(|v| (*v).clone()).collect()),
                }
            }
            Value::String(text) if text::is_blank(text) => return,
            // A box whose value is its own label ("I agree to be contacted") is a ticked one.
            Value::String(text)
                if target == "marketing_consent"
                    && consent::parse(text).is_err()
                    && recognise(text) == Some("marketing_consent") =>
            {
                Value::Bool(true)
            }
            Value::Null => return,
            value => value.clone(),
        };
        self.0.entry(target).or_insert(value);
    }

    /// Keeps the value under the name of what the label asks for, if it is known.
    pub(super) fn put_labelled(&mut self, label: &str, value: &Value) {
        if let Some(target) = recognise(label) {
            self.put(target, value);
        }
    }

    /// Every member of an object whose name is known.
    pub(super) fn put_members(&mut self, object: &Value) {
        for (label, value) in object.as_object().into_iter().flatten().take(MAX_LABELS) {
            // In what programs send, `state` is a status more often than a province.
            if label != "state" {
                self.put_labelled(label, value);
            }
        }
    }

    /// Whether an address is among it.
    pub(super) fn has_email(&self) -> bool {
        self.0.contains_key("email")
    }

    /// Leaves it in the part for [`RULES`].
    pub(super) fn leave_in(self, part: &mut Value) {
        if let Value::Object(members) = part {
            members.insert(FOUND.to_owned(), Value::Object(self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_many_forms() {
        for (label, target) in [
            ("E-mail", Some("email")),
            ("Your email address *", Some("email")),
            ("Work email", Some("email")),
            ("Ihr Name", Some("full_name")),
            ("nomeCompleto", Some("full_name")),
            ("1Name69", Some("full_name")),
            ("Telefone (com DDD)", Some("phone")),
            ("Nom de l'entreprise", None),
            ("Unternehmensgröße", None),
            ("Aceito os termos", Some("marketing_consent")),
            ("I agree to be contacted", Some("marketing_consent")),
            ("utm_source", Some("utm_source")),
            ("URL da página", Some("landing_page")),
            ("What is the best email of your boss?", None),
            ("Data", None),
            ("", None),
        ] {
            assert_eq!(recognise(label), target, "{label}");
        }
    }

    #[test]
    fn labels_are_written_as_they_are_compared() {
        for (target, labels) in LABELS {
            assert!(RULES.iter().any(|rule| rule.target.name() == *target), "{target}");
            for label in *labels {
                assert_eq!(words(label).concat(), *label);
                assert_eq!(recognise(label), Some(*target), "{label} is under two targets");
            }
        }
    }
}
