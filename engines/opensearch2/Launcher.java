import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.settings.Setting;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.painless.PainlessPlugin;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/** Starts one OpenSearch 2 node: {@code Launcher DATA_DIR HTTP_PORT URL_FILE}; port 0 takes a free one. */
public final class Launcher extends Node {
    private Launcher(Environment environment) {
        super(environment, List.of(PainlessPlugin.class, Netty4Plugin.class, CommonAnalysisPlugin.class, PolicySettings.class), false);
    }

    /** Index settings of the state management plugin, which is not here: stored and shown as there, without effect. */
    public static final class PolicySettings extends Plugin {
        @Override
        public List<Setting<?>> getSettings() {
            return List.of(
                text("index.plugins.index_state_management.rollover_alias"),
                text("index.plugins.index_state_management.policy_id"),
                text("index.opendistro.index_state_management.rollover_alias"),
                text("index.opendistro.index_state_management.policy_id"));
        }

        private static Setting<String> text(String name) {
            return Setting.simpleString(name, Setting.Property.IndexScope, Setting.Property.Dynamic);
        }
    }

    public static void main(String[] args) throws Exception {
        Path home = Path.of(args[0]).toAbsolutePath();
        for (String folder : List.of("config", "lib", "modules", "plugins")) {
            Files.createDirectories(home.resolve(folder));
        }
        Settings settings = Settings.builder()
            .put("path.home", home)
            .put("cluster.name", "onceline")
            .put("node.name", "n1")
            .put("discovery.type", "single-node")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("network.host", "127.0.0.1")
            .put("http.port", args[1])
            .put("transport.port", 0)
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        Launcher node = new Launcher(
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), home.resolve("config"), () -> "n1"));
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (java.io.IOException e) {
                e.printStackTrace();
            }
            ended.countDown();
        }));
        node.start();
        int port = node.injector().getInstance(HttpServerTransport.class).boundAddress().publishAddress().getPort();
        Path url = Path.of(args[2]);
        Path draft = Path.of(args[2] + ".draft");
        Files.writeString(draft, "http://127.0.0.1:" + port + "\n");
        Files.move(draft, url, StandardCopyOption.ATOMIC_MOVE);
        ended.await();
    }
}
