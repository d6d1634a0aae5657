use super::*;
#[derive(Clone, Debug)]
pub struct Config {
    pub action: Action,
}
impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        t.skip_rest();
        None
    }
    pub fn words(&self) -> String {
        String::new()
    }
}
pub struct Elasticsearch;
impl Elasticsearch {
    pub fn open(_: &Config, _: &Pipeline) -> anyhow::Result<Elasticsearch> {
        anyhow::bail!("")
    }
}
impl Output for Elasticsearch {
    fn form(&self) -> Form {
        Form::Lines
    }
    fn run(self: Box<Self>, _: Parcels, _: Acks, _: Phases) -> anyhow::Result<()> {
        Ok(())
    }
}
