mod rig;
#[test]
fn both_engines_answer() {
    for engine in rig::Engine::all() {
        println!("{}", engine.get("/").text());
    }
}
