//! How a section of the configuration names a RabbitMQ: the same keys for every role of SCADA.

use bus::rabbitmq::Address;
use settings::Section;

/// The broker that a section with `rabbitmq_url` and `rabbitmq_ca_file` names, when its bus is `rabbitmq`.
pub(crate) fn address(section: &Section) -> Result<Address, settings::Error> {
    let url = section
        .find("rabbitmq_url")?
        .ok_or_else(|| section.refuse("rabbitmq_url", "is required with bus = \"rabbitmq\""))?;
    // The client library's words might repeat a part of the address.
    let address = Address::parse(url.secret().expose()).map_err(|_| {
        let expected = "expected amqp://user:password@host:port/vhost or amqps://…";
        section.refuse("rabbitmq_url", format!("is no address of a broker: {expected}"))
    })?;
    Ok(match section.find("rabbitmq_ca_file")? {
        Some(file) => address.with_ca_file(file.path()),
        None => address,
    })
}
