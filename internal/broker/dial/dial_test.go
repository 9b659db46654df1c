package dial

import (
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestURLSelectsEngine(t *testing.T) {
	for url, want := range map[string]EngineName{
		"redis://a": AsynqEngine, "rediss://a": AsynqEngine, "nats://a": NATSEngine, "tls://a": NATSEngine, "a:4222": NATSEngine,
	} {
		require.True(t, EngineOf(url) == want, "%s selects %s, want %s", url, EngineOf(url), want)
	}
}

func TestFailedConnectReturnsNilEngineAndClassifiedError(t *testing.T) {
	for name, row := range map[string]struct {
		engine      EngineName
		credentials broker.Credentials
		want        broker.ErrorClass
	}{
		"no Redis server":               {AsynqEngine, broker.Credentials{URL: "redis://127.0.0.1:1"}, broker.ClassUnreachable},
		"no NATS server":                {NATSEngine, broker.Credentials{URL: "nats://127.0.0.1:1", TLS: &broker.TLS{}}, broker.ClassUnreachable},
		"unsupported scheme":            {NATSEngine, broker.Credentials{URL: "http://x"}, broker.ClassInvalid},
		"unsupported engine":            {"Pigeon", broker.Credentials{URL: "http://x"}, broker.ClassInvalid},
		"Redis URL for the NATS engine": {NATSEngine, broker.Credentials{URL: "redis://x"}, broker.ClassInvalid},
		"NATS URL for the asynq engine": {AsynqEngine, broker.Credentials{URL: "nats://x"}, broker.ClassInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := Connect(t.Context(), row.engine, row.credentials)
			require.True(t, engine == nil && broker.ClassOf(err) == row.want && !strings.Contains(err.Error(), "nil"), "%v: %v", engine, err)
		})
	}
}
