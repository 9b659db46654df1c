package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

const ordersPath = "/namespaces/team-a/queues/orders/jobs"

func TestWhoMayNotSendLearnsNothingAboutTheQueue(t *testing.T) {
	env := newTestEnv(t)
	const missing = "/namespaces/team-a/queues/missing/jobs"
	for title, headers := range map[string][]string{
		"no token":                        {"Authorization: "},
		"another scheme":                  {"Authorization: Basic YTpi"},
		"an invalid token":                {"Authorization: Bearer forged"},
		"a token without the audience":    {"Authorization: Bearer unaware-token"},
		"a token that is longer than any": {"Authorization: Bearer " + strings.Repeat("x", maxTokenBytes+1)},
	} {
		for _, path := range []string{ordersPath, missing} {
			got := env.do("POST", path, "{}", headers...)
			env.want(title, got, http.StatusUnauthorized, reasonUnauthenticated, "")
			require.True(t, got.header.Get("WWW-Authenticate") != "", "%s: no header WWW-Authenticate", title)
		}
	}
	env.set(func() {
		env.denied = []string{"create team-a/orders", "create team-a/missing", "create team-b/orders", "delete team-a/orders"}
	})
	for _, path := range []string{ordersPath, missing, "/namespaces/team-b/queues/orders/jobs", "/queues/orders/jobs", ordersPath + "/many"} {
		env.want(path, env.do("POST", path, "{}"), http.StatusForbidden, reasonForbidden, "")
	}
	env.want("cancel", env.do("DELETE", ordersPath+"/7", ""), http.StatusForbidden, reasonForbidden, "")
	require.True(t, env.IsEmpty(), "a job was stored")
}

func TestErrorsNameTheFieldAndTheReason(t *testing.T) {
	env := newTestEnv(t)
	for path, want := range map[string]struct {
		status        int
		reason, field string
	}{
		ordersPath + "?delay=soon":                                        {400, reasonInvalidJob, "delay"},
		ordersPath + "?delay=-1s":                                         {400, reasonInvalidJob, "delay"},
		ordersPath + "?at=tomorrow":                                       {400, reasonInvalidJob, "at"},
		ordersPath + "?at=2030-01-31T08:00:00Z&delay=1s":                  {400, reasonInvalidJob, "at"},
		ordersPath + "?timeout=48h":                                       {400, reasonInvalidJob, "timeout"},
		ordersPath + "?id=" + url.QueryEscape("a b"):                      {400, reasonInvalidJob, "id"},
		ordersPath + "?id=":                                               {400, reasonInvalidJob, "id"},
		ordersPath + "?kind=" + strings.Repeat("k", 200):                  {400, reasonInvalidJob, "kind"},
		ordersPath + "?deduplicateFor=1h":                                 {400, reasonInvalidJob, "deduplicateFor"},
		ordersPath + "?deduplicateFor=1h&id=a":                            {400, reasonUnsupported, "deduplicateFor"},
		ordersPath + "?unique=":                                           {400, reasonInvalidJob, "unique"},
		ordersPath + "?uniqueFor=1h":                                      {400, reasonInvalidJob, "uniqueFor"},
		ordersPath + "?uniqueFor=1ms&unique=a":                            {400, reasonInvalidJob, "uniqueFor"},
		ordersPath + "?priority=URGENT":                                   {400, reasonInvalidJob, "priority"},
		ordersPath + "?priority=urgent":                                   {400, reasonUnknownPriority, "priority"},
		ordersPath + "?prio=urgent":                                       {400, reasonInvalidRequest, "prio"},
		ordersPath + "?id=a&id=b":                                         {400, reasonInvalidRequest, "id"},
		"/namespaces/team-a/queues/Orders/jobs":                           {400, reasonInvalidRequest, "queue"},
		"/namespaces/team_a/queues/orders/jobs":                           {400, reasonInvalidRequest, "namespace"},
		"/namespaces/team-a/queues/" + url.PathEscape("a/../b") + "/jobs": {400, reasonInvalidRequest, "queue"},
		"/namespaces/team-a/queues/missing/jobs":                          {404, reasonQueueNotFound, ""},
		"/namespaces/unserved/queues/orders/jobs":                         {404, reasonNamespaceNotFound, ""},
		"/namespaces/team-a/queues/orders":                                {404, reasonNotFound, ""},
		"/":                                                               {404, reasonNotFound, ""},
		ordersPath + "/many?id=a":                                         {400, reasonInvalidRequest, "id"},
	} {
		env.want(path, env.do("POST", path, "{}"), want.status, want.reason, want.field)
	}
	env.want("a reserved header", env.do("POST", ordersPath, "{}", "Job-Header-Nats-Msg-Id: a"), 400, reasonInvalidJob, "headers[Nats-Msg-Id]")
	env.want("a user without a namespace", env.do("POST", "/queues/orders/jobs", "{}", "Authorization: Bearer "+userToken), 400, reasonInvalidRequest, "namespace")
	env.want("a user", env.do("POST", ordersPath, "{}", "Authorization: Bearer "+userToken), 201, "", "")
	env.want("another method", env.do("GET", ordersPath, ""), 405, reasonMethodNotAllowed, "")
	env.want("another method", env.do("PUT", ordersPath+"/7", ""), 405, reasonMethodNotAllowed, "")
}

func TestAUniqueJobIsRefusedWithTheIDOfTheJobThatHasItsKey(t *testing.T) {
	env := newTestEnv(t)
	env.want("the first", env.do("POST", ordersPath+"?unique=k&id=a", "{}"), http.StatusCreated, "", "")
	env.want("the same", env.do("POST", ordersPath+"?unique=k&id=a", "{}"), http.StatusOK, "", "")
	second := env.do("POST", ordersPath+"?unique=k&uniqueFor=1h", "{}")
	env.want("another", second, http.StatusConflict, reasonKeyTaken, "unique")
	require.True(t, second.KeyHolder == "a", "%+v", second)
	many := env.do("POST", ordersPath+"/many", `{"payload":1,"unique":"k"}`+"\n"+`{"payload":2,"unique":"l"}`)
	require.True(t, many.status == http.StatusMultiStatus && many.Failed == 1 && many.Jobs[0].Error.Reason == reasonKeyTaken, "%+v", many)
	require.Equal(t, 2, env.Left())
}

func TestAQueueThatIsNotReadyAcceptsNoJob(t *testing.T) {
	env := newTestEnv(t)
	update := func(change func(*v1alpha1.Queue)) {
		t.Helper()
		stored := &v1alpha1.Queue{}
		require.NoError(t, env.api.Get(t.Context(), kubeclient.ObjectKey{Namespace: tenant, Name: "orders"}, stored))
		q := readyQueue(tenant, "orders", "orders")
		change(q)
		q.ResourceVersion = stored.ResourceVersion
		q.Finalizers = []string{"yardmaster.dev/test"}
		require.NoError(t, env.api.Update(t.Context(), q))
		expire(env.queues.targets)
	}
	for title, change := range map[string]func(*v1alpha1.Queue){
		"not ready":                         func(q *v1alpha1.Queue) { q.Status.Conditions[0].Status = metav1.ConditionFalse },
		"changed since the operator saw it": func(q *v1alpha1.Queue) { q.Generation = 2 },
		"new":                               func(q *v1alpha1.Queue) { q.Status = v1alpha1.QueueStatus{} },
	} {
		update(change)
		env.want(title, env.do("POST", ordersPath, "{}"), http.StatusServiceUnavailable, reasonQueueNotReady, "")
	}
	update(func(q *v1alpha1.Queue) { q.Status.Name = "others" })
	env.want("its broker has no such queue", env.do("POST", ordersPath, "{}"), http.StatusServiceUnavailable, reasonQueueNotReady, "queue")
	update(func(q *v1alpha1.Queue) { q.Spec.Broker.URLSecretRef.Name = "missing" })
	env.want("no Secret", env.do("POST", ordersPath, "{}"), http.StatusServiceUnavailable, v1alpha1.ReasonSecretNotFound, "")
	require.NoError(t, env.api.Delete(t.Context(), readyQueue(tenant, "orders", "orders")))
	expire(env.queues.targets)
	env.want("deleted", env.do("POST", ordersPath, "{}"), http.StatusConflict, reasonQueueDraining, "")
}

func TestAFullQueueIsRetryable(t *testing.T) {
	env := newTestEnv(t)
	queuetest.Ensure(t, env.Engine, "small", func(q *broker.QueueConfig) { q.MaxBacklog = 1 })
	require.NoError(t, env.api.Create(t.Context(), readyQueue(tenant, "small", "small")))
	path := "/queues/small/jobs"
	first := env.do("POST", path, "{}")
	env.want("first", first, http.StatusCreated, "", "")
	require.True(t, first.ID != "", "a job without an ID gets none")
	env.want("second", env.do("POST", path, "{}"), http.StatusTooManyRequests, reasonQueueFull, "queue")
	many := env.do("POST", path+"/many", `{"payload": 1}`)
	require.True(t, many.status == http.StatusMultiStatus && many.Failed == 1 && many.Jobs[0].Error.Reason == reasonQueueFull, "many: %+v", many)
}

func TestABodyThatIsTooLargeIsRefusedBeforeItIsRead(t *testing.T) {
	env := newTestEnv(t)
	got, err := env.try("POST", ordersPath, io.NopCloser(strings.NewReader(strings.Repeat("x", 10<<20))))
	if err == nil { // otherwise the server closed the connection while the client was sending
		env.want("chunked", got, http.StatusRequestEntityTooLarge, reasonTooLarge, "")
	}
	env.want("known length", env.do("POST", ordersPath, strings.Repeat("x", defaultMaxBody+1), "Expect: 100-continue"), http.StatusRequestEntityTooLarge, reasonTooLarge, "")
	env.want("many", env.do("POST", ordersPath+"/many", strings.Repeat("{}\n", 2*defaultMaxBody), "Expect: 100-continue"), http.StatusRequestEntityTooLarge, reasonTooLarge, "")
	env.want("more than the broker accepts", env.do("POST", ordersPath, strings.Repeat("x", defaultMaxBody), "Job-Header-A: "+strings.Repeat("a", 1000)), http.StatusRequestEntityTooLarge, reasonTooLarge, "payload")
	require.True(t, env.IsEmpty(), "a job was stored")
}

func TestManyJobsHaveAResultEach(t *testing.T) {
	env := newTestEnv(t)
	binary := base64.StdEncoding.EncodeToString([]byte{0, 255})
	got := env.do("POST", ordersPath+"/many", `{"id": "a", "payload": {"n": 1}, "kind": "charge", "headers": {"Tenant": "acme"}}
{"id": "a", "payload": null}
{"id": "b", "payloadBase64": "`+binary+`", "delay": "1h"}
{"payload": "text", "priority": "urgent"}
`)
	require.True(t, got.status == http.StatusMultiStatus && got.Failed == 1 && len(got.Jobs) == 4, "%+v", got)
	areAccepted := got.Jobs[0].ID == "a" && !got.Jobs[0].Duplicate && got.Jobs[1].Duplicate && got.Jobs[2].ID == "b"
	require.True(t, areAccepted && got.Jobs[3].Error.Reason == reasonUnknownPriority, "%+v", got.Jobs)
	require.Equal(t, 2, env.Left())
}

func TestOfManyJobsNoneIsSentIfOneIsInvalid(t *testing.T) {
	env := newTestEnv(t)
	for body, want := range map[string]struct {
		status        int
		reason, field string
	}{
		``:                               {400, reasonInvalidRequest, "jobs"},
		`{"payload": 1} {`:               {400, reasonInvalidRequest, "jobs[1]"},
		`{"payload": 1} []`:              {400, reasonInvalidRequest, "jobs[1]"},
		`{"payload": 1, "prio": "a"}`:    {400, reasonInvalidRequest, "jobs[0]"},
		`{"payload": 1} null`:            {400, reasonInvalidJob, "jobs[1].payload"},
		`{"payload": 1} {"delay": "1s"}`: {400, reasonInvalidJob, "jobs[1].payload"},
		`{"payload": 1, "payloadBase64": "YQ=="}`:        {400, reasonInvalidJob, "jobs[0].payload"},
		`{"payload": 1} {"payload": 2, "delay": "soon"}`: {400, reasonInvalidJob, "jobs[1].delay"},
		`{"payload": 1, "headers": {"Nats-A": "b"}}`:     {400, reasonInvalidJob, "jobs[0].headers[Nats-A]"},
		strings.Repeat(`{"payload": 1}`, maxJobs+1):      {413, reasonTooLarge, ""},
	} {
		env.want(shorten(body), env.do("POST", ordersPath+"/many", body), want.status, want.reason, want.field)
	}
	require.True(t, env.IsEmpty(), "a job was stored")
	got := env.do("POST", ordersPath+"/many", strings.Repeat(`{"payload": 1}`, maxJobs))
	require.True(t, got.status == http.StatusOK && len(got.Jobs) == maxJobs, "the largest number of jobs: %d, %d jobs", got.status, len(got.Jobs))
}

func TestADelayedJobIsCanceled(t *testing.T) {
	env := newTestEnv(t)
	const id = "reminder/7"
	env.want("delayed", env.do("POST", ordersPath+"?delay=1h&id="+url.QueryEscape(id), "{}"), http.StatusCreated, "", "")
	path := ordersPath + "/" + url.PathEscape(id)
	got := env.do("DELETE", path, "")
	require.True(t, got.status == http.StatusOK && got.Canceled && got.ID == id, "%+v", got)
	require.True(t, env.IsEmpty(), "a job was stored")
	env.want("again", env.do("DELETE", path, ""), http.StatusNotFound, reasonJobNotDelayed, "")
	env.want("an invalid ID", env.do("DELETE", ordersPath+"/a%20b", ""), http.StatusBadRequest, reasonInvalidJob, "id")
}

func TestReviewsAreKeptForAShortTimeAndErrorsAreNot(t *testing.T) {
	env := newTestEnv(t)
	env.set(func() { env.reviewFailure = errors.New("etcd is slow") })
	for range 2 {
		got := env.do("POST", ordersPath, "{}")
		env.want("no API server", got, http.StatusServiceUnavailable, reasonAPIUnavailable, "")
		require.True(t, !strings.Contains(got.Message, "etcd"), "the answer has the cause: %s", got.Message)
	}
	require.Equal(t, 2, env.asked.Load())
	env.set(func() { env.reviewFailure = nil })
	for range 10 {
		env.want("reviewed", env.do("POST", ordersPath, "{}"), http.StatusCreated, "", "")
		env.want("forged", env.do("POST", ordersPath, "{}", "Authorization: Bearer forged"), http.StatusUnauthorized, reasonUnauthenticated, "")
	}
	require.Equal(t, 2+3, env.asked.Load()) // the token, the permission, the forged token
}

func TestAnOutageOfTheBrokerIsRetryable(t *testing.T) {
	env := newTestEnv(t)
	env.want("before", env.do("POST", ordersPath+"?id=1", "{}"), http.StatusCreated, "", "")
	env.Server.Stop()
	for range 2 {
		got := env.do("POST", ordersPath+"?id=2", "{}")
		require.True(t, got.status == http.StatusServiceUnavailable && got.header.Get("Retry-After") != "", "during the outage: %+v", got)
	}
	env.Server.Restart()
	poll.Until(t, "the job to be stored after the outage", func() bool {
		got := env.do("POST", ordersPath+"?id=2", "{}")
		isExpected := slices.Contains([]int{http.StatusCreated, http.StatusOK, http.StatusServiceUnavailable}, got.status)
		require.True(t, isExpected, "after the outage: %+v", got)
		return got.status != http.StatusServiceUnavailable
	})
	require.Equal(t, 2, env.Left())
}

// The clients of one namespace do not finish their bodies. Others are served meanwhile.
func TestSlowClientsOfANamespaceDoNotExcludeOthers(t *testing.T) {
	env := newTestEnv(t)
	require.NoError(t, env.api.Create(t.Context(), readyQueue("team-b", "orders", "orders")))
	release := make(chan struct{})
	var slow sync.WaitGroup
	for range eachNamespace.requests {
		body, write := io.Pipe()
		slow.Go(func() { _, _ = env.try("POST", "/namespaces/team-b/queues/orders/jobs", body) })
		slow.Go(func() { <-release; _ = write.Close() })
	}
	poll.Until(t, "the namespace to have all its requests", func() bool {
		return env.occupiedBy("team-b").plus(amount{1, requestBytes + memoryFactor*defaultMaxBody}).exceeds(env.shares.each)
	})
	env.want("the same namespace", env.do("POST", "/namespaces/team-b/queues/orders/jobs", strings.Repeat("x", defaultMaxBody)), http.StatusTooManyRequests, reasonTooManyRequests, "")
	env.want("another namespace", env.do("POST", ordersPath, "{}"), http.StatusCreated, "", "")
	close(release)
	slow.Wait()
	poll.Until(t, "nothing to be occupied", func() bool { return env.occupiedBy("team-a") == amount{} && env.occupiedBy("team-b") == amount{} })
	require.True(t, env.shares.occupied == amount{} && len(env.shares.occupiedBy) == 0, "%+v is occupied", env.shares.occupied)
}

// occupiedBy returns what the requests of a namespace occupy.
func (env *testEnv) occupiedBy(namespace string) amount {
	env.shares.mu.Lock()
	defer env.shares.mu.Unlock()
	return env.shares.occupiedBy[namespace]
}

// Reviews of forged tokens do not end. A token that was valid is reviewed meanwhile.
func TestForgedTokensDoNotDelayTheReviewOfKnownOnes(t *testing.T) {
	env := newTestEnv(t)
	env.want("before", env.do("POST", ordersPath, "{}"), http.StatusCreated, "", "")
	release := make(chan struct{})
	env.set(func() {
		env.reviewing = func(token string) {
			if token != validToken {
				<-release
			}
		}
	})
	var forgers sync.WaitGroup
	for i := range 100 {
		forgers.Go(func() {
			_, _ = env.try("POST", ordersPath, http.NoBody, fmt.Sprintf("Authorization: Bearer forged-%d", i))
		})
	}
	poll.Until(t, "the forgers to have all reviews of their host", func() bool {
		env.reviewer.ofHosts.mu.Lock()
		defer env.reviewer.ofHosts.mu.Unlock()
		return env.reviewer.ofHosts.occupied.requests == env.reviewer.ofHosts.each.requests
	})
	env.want("one more", env.do("POST", ordersPath, "", "Authorization: Bearer forged"), http.StatusTooManyRequests, reasonTooManyRequests, "")
	expire(env.reviewer.tokens)
	env.want("known", env.do("POST", ordersPath, "{}"), http.StatusCreated, "", "")
	close(release)
	forgers.Wait()
}

func TestRequestsEndBeforeTheGatewayStops(t *testing.T) {
	env := newTestEnv(t)
	poll.Until(t, "the gateway to be connected", func() bool { return env.do("POST", ordersPath, "{}").status == http.StatusCreated })
	body, write := io.Pipe()
	ended := make(chan reply)
	go func() {
		got, _ := env.try("POST", ordersPath, body)
		ended <- got
	}()
	poll.Until(t, "the request to arrive", func() bool { return env.occupiedBy("team-a").requests == 1 })
	env.stop()
	_, _ = io.WriteString(write, "{}")
	_ = write.Close()
	require.Equal(t, http.StatusCreated, (<-ended).status)
}

// expire ends the time for which answers are kept.
func expire[T any](l *lookup[T]) { l.answers.RemoveAll(func(any) bool { return true }) }

// The program of docs/reference/wire-contract.md, with curl.
func TestAProducerWithCurlSendsTheSameJobs(t *testing.T) {
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
		require.Call(producer.Enqueue(t.Context(), "orders", []byte(payload), job.options...)).Succeeds(t)
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
	producer := require.Call(client.New(env.t.Context(), client.Options{Broker: client.BrokerConfig{URL: env.URL}})).Succeeds(env.t)
	env.t.Cleanup(func() { _ = producer.Close(context.Background()) })
	return producer
}

func TestFlagsAreReadFromArgumentsAndTheEnvironment(t *testing.T) {
	t.Parallel()
	environment := []string{"YARDMASTER_BROKER_URL_SECRET=nats/address", "YARDMASTER_OPERATOR_NAMESPACE=system", "YARDMASTER_AUDIENCE=ignored"}
	got, err := ParseFlags([]string{"--audience=jobs", "--max-body-bytes=2097152", "--certificate-dir="}, environment, io.Discard)
	require.NoError(t, err)
	want := Options{
		Address: ":8443", HealthAddress: ":8081", MetricsAddress: ":9464", Audience: "jobs", MaxBodyBytes: 2 << 20,
		DrainTimeout: handleTimeout, Namespace: "system",
	}
	want.Broker.Engine, want.Broker.URLSecret = "NATS", "nats/address"
	require.Equal(t, want, got)
	for arguments, message := range map[string]string{
		"--audience=":              "--audience is empty",
		"--max-body-bytes=0":       "--max-body-bytes is 0",
		"--max-body-bytes=9000000": "--max-body-bytes is 9000000",
		"--broker-url-secret=nats": "needs --operator-namespace",
		"--broker-engine=kafka":    "--broker-engine",
		"serve":                    `unexpected argument "serve"`,
		"--audiences=jobs":         "not defined: -audiences",
	} {
		_, err := ParseFlags(strings.Fields(arguments), nil, io.Discard)
		require.ErrorContains(t, err, message)
	}
	_, err = ParseFlags(nil, []string{"YARDMASTER_AUDIENCES=jobs"}, io.Discard)
	require.ErrorContains(t, err, "no flag --audiences")
}

func TestACertificateMayArriveLateAndChange(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting, found := make(chan struct{}, 1), make(chan *tls.Config)
	log := slog.New(slog.NewTextHandler(writerFunc(func([]byte) { waiting <- struct{}{} }), nil))
	go func() {
		config, err := waitForCertificate(ctx, directory, log)
		if err != nil {
			t.Error(err)
		}
		found <- config
	}()
	<-waiting
	writeCertificate(t, directory)
	config := <-found
	leaf := func() []byte {
		c := require.Call(config.GetCertificate(nil)).Succeeds(t)
		return c.Certificate[0]
	}
	first := leaf()
	writeCertificate(t, directory)
	// A volume replaces both files at once; here, events of each file are read until they match.
	poll.Until(t, "the new certificate to be served", func() bool {
		now := time.Now()
		_ = os.Chtimes(filepath.Join(directory, "tls.crt"), now, now)
		return !bytes.Equal(first, leaf())
	})
}

type writerFunc func([]byte)

func (w writerFunc) Write(line []byte) (int, error) { w(line); return len(line), nil }
