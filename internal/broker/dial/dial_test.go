package dial

import (
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/redistest"
)

func TestURLSelectsEngine(t *testing.T) {
	redis, nats := redistest.Start(t), natstest.Start(t)
	isAsynq := func(e broker.Engine) bool { _, ok := e.(*asynq.Engine); return ok }
	isNATS := func(e broker.Engine) bool { _, ok := e.(*jetstream.Engine); return ok }
	for name, row := range map[string]struct {
		url  string
		want func(broker.Engine) bool
	}{
		"redis URL":              {redis.URL(), isAsynq},
		"nats URL":               {nats.ClientURL(), isNATS},
		"address with no scheme": {nats.Address(), isNATS},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := Connect(t.Context(), EngineOf(row.url), broker.Credentials{URL: row.url})
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Disconnect()
			if !row.want(engine) {
				t.Errorf("got a %T", engine)
			}
		})
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
		"NATS credentials for Redis":    {AsynqEngine, broker.Credentials{URL: "redis://x", NATSCredentials: []byte("x")}, broker.ClassInvalid},
		"token for Redis":               {AsynqEngine, broker.Credentials{URL: "redis://x", Token: "x"}, broker.ClassInvalid},
		"Redis URL for the NATS engine": {NATSEngine, broker.Credentials{URL: "redis://x"}, broker.ClassInvalid},
		"NATS URL for the asynq engine": {AsynqEngine, broker.Credentials{URL: "nats://x"}, broker.ClassInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := Connect(t.Context(), row.engine, row.credentials)
			if engine != nil || broker.ClassOf(err) != row.want || strings.Contains(err.Error(), "nil") {
				t.Errorf("%v: %v", engine, err)
			}
		})
	}
}
