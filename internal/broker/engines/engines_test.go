package engines

import (
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/internal/backlog/source"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient/redistest"
)

func TestTheURLSaysWhichBrokerItIs(t *testing.T) {
	redis, nats := redistest.Start(t), natstest.Start(t)
	for name, row := range map[string]struct {
		url  string
		want func(broker.Engine) bool
	}{
		"of Redis":              {redis.URL(), func(e broker.Engine) bool { _, is := e.(*asynq.Engine); return is }},
		"of NATS":               {nats.ClientURL(), func(e broker.Engine) bool { _, is := e.(*jetstream.Engine); return is }},
		"of NATS, by its place": {nats.Address(), func(e broker.Engine) bool { _, is := e.(*jetstream.Engine); return is }},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := Connect(t.Context(), Access{Access: source.Access{URL: row.url}})
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Disconnect()
			if !row.want(engine) {
				t.Errorf("it is a %T", engine)
			}
		})
	}
}

func TestAFailureToConnectIsNoEngine(t *testing.T) {
	for name, row := range map[string]struct {
		access Access
		want   broker.ErrorClass
	}{
		"to Redis":                     {Access{Access: source.Access{URL: "redis://127.0.0.1:1"}}, broker.ClassUnreachable},
		"to NATS":                      {Access{Access: source.Access{URL: "nats://127.0.0.1:1", TLS: &source.TLS{}}}, broker.ClassUnreachable},
		"to who has no such URL":       {Access{Access: source.Access{URL: "http://x"}}, broker.ClassInvalid},
		"to Redis with NATS's secrets": {Access{Access: source.Access{URL: "redis://x"}, Credentials: []byte("x")}, broker.ClassInvalid},
		"to Redis with a token":        {Access{Access: source.Access{URL: "redis://x", Token: "x"}}, broker.ClassInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := Connect(t.Context(), row.access)
			if engine != nil || broker.ClassOf(err) != row.want || strings.Contains(err.Error(), "nil") {
				t.Errorf("%v: %v", engine, err)
			}
		})
	}
}
