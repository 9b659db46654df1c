package gateway

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// The program of docs/reference/wire-contract.md, with curl.
func TestAProducerWithCurlSendsTheSameJobs(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	producer := env.newProducer()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(validToken), 0o600))
	run := func(queue, payload string, arguments ...string) (answer receipt, err error) {
		command := exec.CommandContext(t.Context(), "../../examples/producer/enqueue.sh", append([]string{env.url, queue, payload}, arguments...)...)
		command.Env = append(os.Environ(), "TOKEN_FILE="+token, "CA_FILE="+env.ca)
		output, err := command.CombinedOutput()
		t.Logf("%v: %s", arguments, output)
		if err == nil {
			err = json.Unmarshal(output, &answer)
		}
		return answer, err
	}
	next := queuetest.Consume(t, env.Engine, "orders", broker.DefaultPriority)
	payload := `{"name": "Müller & Söhne"}`
	due := time.Now().Add(time.Second)
	json := client.Header("Content-Type", "application/json")
	for title, job := range map[string]struct {
		options   []client.Option
		arguments []string
	}{
		"with an ID": {
			[]client.Option{json, client.ID("a"), client.Kind("charge"), client.Timeout(time.Minute), client.Header("Tenant", "ü=1"), client.Header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
			[]string{"id=b", "kind=charge", "timeout=60s", "--", "--header", "Job-Header-Tenant: ü=1", "--header", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		},
		"delayed, with an ID that a query must escape": {
			[]client.Option{json, client.ID("c"), client.At(due)},
			[]string{"id=50%+#&d", "at=" + due.In(time.FixedZone("", 3600)).Format(time.RFC3339Nano)},
		},
	} {
		_, err := producer.Enqueue(t.Context(), "orders", []byte(payload), job.options...)
		require.NoError(t, err)
		want := next()
		for _, queue := range []string{"orders", "team-a/orders"} {
			answer, err := run(queue, payload, job.arguments...)
			require.True(t, err == nil && answer.Duplicate == (queue != "orders"), "%s: %+v; %v", title, answer, err)
		}
		queuetest.AssertSameJob(t, title, want, next())
	}
	_, err := run("nobody", payload)
	require.True(t, err != nil, "a job was sent to an unknown queue")
}

// Jobs of a request with many are the same as those of package client.
func TestManyJobsAreTheSameAsThoseOfTheClient(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	producer := env.newProducer()
	next := queuetest.Consume(t, env.Engine, "orders", broker.DefaultPriority)
	value := map[string]string{"name": "Müller"}
	_, err := client.Enqueue(t.Context(), producer, "orders", value, client.ID("a"), client.Kind("charge"), client.Header("Tenant", "acme"))
	require.NoError(t, err)
	want := next()
	got := env.do("POST", ordersPath+"/many", `{"id": "b", "kind": "charge", "headers": {"Tenant": "acme"}, "payload": {"name":"Müller"} }`)
	require.True(t, got.status == 200, "%+v", got)
	queuetest.AssertSameJob(t, "many", want, next())
}

// newProducer returns a client that sends jobs without the gateway.
func (env *testEnv) newProducer() *client.Client {
	env.t.Helper()
	producer, err := client.New(env.t.Context(), client.Options{Broker: client.BrokerConfig{URL: env.URL}})
	require.NoError(env.t, err)
	env.t.Cleanup(func() { _ = producer.Close(context.Background()) })
	return producer
}
