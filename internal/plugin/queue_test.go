package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	producer "github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	engine "github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// natsQueue returns a Queue in namespace a, on the broker of the Secret nats.
func natsQueue(name string, changes ...func(*v1alpha1.Queue)) *v1alpha1.Queue {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1"}}
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "nats"
	q.Status.Name = name
	for _, change := range changes {
		change(q)
	}
	return q
}

func natsSecret(url string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "nats", Namespace: "a", Labels: map[string]string{v1alpha1.LabelBroker: "true"}},
		Data:       map[string][]byte{"url": []byte(url)},
	}
}

// deadLetterBroker is a NATS server with a queue mail that has dead letters.
type deadLetterBroker struct {
	*natstest.Server
	t      *testing.T
	engine broker.Engine
}

func (g *deadLetterBroker) lastJob() *jetstream.RawStreamMsg {
	js := g.JetStream()
	name, err := js.StreamNameBySubject(g.t.Context(), "yardmaster.mail.ready.default")
	require.NoError(g.t, err)
	stream, err := js.Stream(g.t.Context(), name)
	require.NoError(g.t, err)
	message, err := stream.GetLastMsgForSubject(g.t.Context(), "yardmaster.mail.ready.default")
	require.NoError(g.t, err)
	return message
}

func TestASentJobHasItsPayloadKindAndHeaders(t *testing.T) {
	g := newDeadLetterBroker(t, 0)
	file := filepath.Join(t.TempDir(), "order.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"order":7}`), 0o600))
	const command = "queue send mail --kind invoice --id order-7 --timeout 30s --header Tenant=acme -f "
	code, out, errOut := runPlugin(t, command+file, natsQueue("mail"), natsSecret(g.clientURL()))
	require.True(t, code == exitSuccess && out == "job order-7 sent to queue.yardmaster.dev/mail\n", outcome, code, out, errOut)
	message := g.lastJob()
	require.True(t, string(message.Data) == `{"order":7}` && message.Header.Get("Tenant") == "acme" && message.Header.Get("Yardmaster-Kind") == "invoice",
		"payload %q, headers %v", message.Data, message.Header)
	_, out, _ = runPlugin(t, command+file, natsQueue("mail"), natsSecret(g.clientURL()))
	require.Equal(t, "queue.yardmaster.dev/mail has job order-7 already\n", out)
	g.expectCounts(0, 1)
}

func TestAUniqueJobIsSentOnceAndTheSecondNamesTheFirst(t *testing.T) {
	g := newDeadLetterBroker(t, 0)
	send := func(flags string) (int, string, string) {
		return runPlugin(t, "queue send mail --data x "+flags, natsQueue("mail"), natsSecret(g.clientURL()))
	}
	for _, key := range []string{"--unique customer-7", "--unique customer-8 --unique-for 1h"} {
		id := "first-of-" + strings.Fields(key)[1]
		code, out, errOut := send(key + " --id " + id)
		require.True(t, code == exitSuccess && strings.Contains(out, id+" sent"), outcome, code, out, errOut)
		if code, out, errOut := send(key); code != exitError || out != "" || !strings.Contains(errOut, "unique") || !strings.Contains(errOut, id) {
			t.Errorf("the second with %s: exit code %d, stdout %q, stderr %q", key, code, out, errOut)
		}
	}
	g.expectCounts(0, 2)
}

func TestJobsThatCannotBeSent(t *testing.T) {
	g := newDeadLetterBroker(t, 0)
	for args, want := range map[string]string{
		"mail":                                        "set either --filename or --data",
		"mail --data x -f y":                          "set either --filename or --data",
		"mail -f /no/such/file":                       "no such file",
		"mail --data x --unique-for 1h":               "--unique-for requires --unique",
		"mail --data x --unique=":                     "unique",
		"mail --data x --unique a/b --unique-for 1ms": "uniqueFor is 1ms",
		"mail --data x --delay -1s":                   "invalid --delay -1s",
		"mail --data x --header Tenant":               `invalid --header "Tenant": must be NAME=VALUE`,
		"mail --data x --header Nats-Msg-Id=1":        "has a reserved prefix",
		"mail --data x --priority urgent":             "urgent",
		"mail --data x --timeout 1ns":                 "timeout is 1ns",
		"video --data x":                              "video",
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := runPlugin(t, "queue send "+args, natsQueue("mail"), natsQueue("video"), natsSecret(g.clientURL()))
			require.True(t, code == exitError && out == "" && strings.Contains(errOut, want), outcome, code, out, errOut)
		})
	}
	g.expectCounts(0, 0)
}

// runJobs runs a worker of queue mail, which keeps the states of jobs, until the test ends.
func (g *deadLetterBroker) runJobs(handler worker.Handler) *producer.Client {
	config := broker.DefaultQueueConfig("mail")
	config.Owner = broker.QueueOwner{UID: "1", Name: "a/mail"}
	config.Results = broker.ResultsConfig{Retention: time.Hour, MaxBytes: broker.DefaultResultsBytes}
	_, err := g.engine.EnsureQueue(g.t.Context(), config)
	require.NoError(g.t, err)
	c, err := producer.New(g.t.Context(), producer.Options{Broker: producer.BrokerConfig{URL: g.clientURL()}})
	require.NoError(g.t, err)
	w, err := worker.New(worker.Options{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Config: worker.Config{
			Broker: worker.BrokerConfig{URL: g.clientURL()}, AdminAddress: "0",
			Queues: []worker.QueueConfig{{Name: "mail", Results: &worker.ResultsConfig{Retention: worker.Duration(time.Hour)}}},
		},
	}, handler)
	require.NoError(g.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	g.t.Cleanup(func() {
		cancel()
		require.NoError(g.t, <-ended)
		_ = c.Close(context.Background())
	})
	return c
}

func TestJobsAreListedShownAndCanceled(t *testing.T) {
	g := newDeadLetterBroker(t, 0)
	c := g.runJobs(func(ctx context.Context, job *worker.Job) error {
		switch job.ID {
		case "bad":
			return worker.DeadLetter("no\x1b[2J")
		case "good":
			return job.SetResult("\x1b]0;title")
		}
		job.Progress(ctx, 0.5, "half\x1b[2J")
		<-ctx.Done()
		return ctx.Err()
	})
	for _, id := range []string{"bad", "good", "long"} {
		_, err := c.Enqueue(t.Context(), "mail", nil, producer.ID(id), producer.Kind("letter"))
		require.NoError(t, err)
	}
	run := func(args string) string {
		t.Helper()
		code, out, errOut := runPlugin(t, "queue "+args, natsQueue("mail"), natsSecret(g.clientURL()))
		require.True(t, code == exitSuccess && !strings.Contains(out, "\x1b"), "%s: "+outcome, args, code, out, errOut)
		return out
	}
	waitForOutput := func(args string, wants ...string) {
		t.Helper()
		err := poll.UntilNil(t.Context(), func() error {
			out := run(args)
			for _, want := range wants {
				if !strings.Contains(out, want) {
					return fmt.Errorf("%s: %s, want %q", args, out, want)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	waitForOutput("jobs mail", "long", "running", "letter", "1/5", "50% half")
	out := run("jobs mail")
	require.True(t, !strings.Contains(out, "good") && !strings.Contains(out, "bad"), "jobs that ended are listed: %s", out)
	waitForOutput("jobs mail --state dead,done", "bad", "good", "no\ufffd[2J")
	waitForOutput("job mail good", "State:", "done", "Result:")
	waitForOutput("job mail long -o json", `"state": "running"`, `"fraction": 0.5`)
	waitForOutput("job mail nobody", "unknown")
	waitForOutput("cancel mail good", "has ended: it is done")
	waitForOutput("cancel mail long", "cancellation requested")
	waitForOutput("job mail long", "canceled")
}

func TestADeadLetterIsShownAndEdited(t *testing.T) {
	g := newDeadLetterBroker(t, 4)
	run := func(args string) string {
		t.Helper()
		code, out, errOut := runPlugin(t, "queue dead "+args, natsQueue("mail"), natsSecret(g.clientURL()))
		require.True(t, code == exitSuccess && !strings.Contains(out, "\x1b"), "%s: "+outcome, args, code, out, errOut)
		return out
	}
	require.Contains(t, run("show mail 2"), "letter 2")
	require.Equal(t, "", run("list mail --filter nobody"))
	editor := filepath.Join(t.TempDir(), "editor")
	require.NoError(t, os.WriteFile(editor, []byte("#!/bin/sh\nprintf edited > \"$1\"\n"), 0o700))
	t.Setenv("KUBE_EDITOR", "true")
	require.Contains(t, run("edit mail 4"), "is unchanged")
	g.expectCounts(4, 0)
	t.Setenv("KUBE_EDITOR", editor)
	run("edit mail 4")
	g.expectCounts(3, 1)
	require.Equal(t, "edited", string(g.lastJob().Data))
}

func TestPayloadsAreEscaped(t *testing.T) {
	got := strings.Join(escapedLines([]byte("{\"a\": \"\\n\"}\r\n\ttab\x1b[2J\xff\u202e")), "|")
	want := `  {"a": "\n"}|      tab\x1b[2J\xff\u202e`
	require.True(t, got == want, "%s, want %s", got, want)
}

func newDeadLetterBroker(t *testing.T, letters int) *deadLetterBroker {
	return newDeadLetterBrokerOn(t, natstest.Start(t), letters)
}

func newDeadLetterBrokerOn(t *testing.T, s *natstest.Server, letters int) *deadLetterBroker {
	g := &deadLetterBroker{Server: s, t: t}
	e, err := engine.Connect(t.Context(), broker.Credentials{URL: g.clientURL()})
	require.NoError(t, err)
	t.Cleanup(e.Disconnect)
	g.engine = e
	config := broker.DefaultQueueConfig("mail")
	config.Owner = broker.QueueOwner{UID: "1", Name: "a/mail"}
	_, err = e.EnsureQueue(t.Context(), config)
	require.NoError(t, err)
	g.addDeadLetters(letters)
	return g
}

func (g *deadLetterBroker) clientURL() string { return "nats://" + g.Address() }

func (g *deadLetterBroker) addDeadLetters(letters int) {
	js := g.JetStream()
	for i := range letters {
		message := nats.NewMsg("yardmaster.mail.dead.default")
		message.Data = fmt.Appendf(nil, "letter %d", i+1)
		message.Header.Set("Yardmaster-Error", "no such address\x1b[2J")
		message.Header.Set("Yardmaster-Attempts", "5")
		_, err := js.PublishMsg(g.t.Context(), message)
		require.NoError(g.t, err)
	}
}

// expectCounts waits for the numbers of dead letters and ready messages. A NATS server counts the ready messages of a consumer asynchronously.
func (g *deadLetterBroker) expectCounts(dead, ready int64) {
	g.t.Helper()
	err := poll.UntilNil(g.t.Context(), func() error {
		stats, err := g.engine.Stats(g.t.Context(), "mail")
		require.NoError(g.t, err)
		if stats.DeadLetters != dead || stats.Ready != ready {
			return fmt.Errorf("%d dead and %d ready, want %d and %d", stats.DeadLetters, stats.Ready, dead, ready)
		}
		return nil
	})
	require.NoError(g.t, err)
}

func TestDeadLetterCommands(t *testing.T) {
	const mail = "queue.yardmaster.dev/mail"
	for args, row := range map[string]struct {
		letters, code int
		out, errOut   string // substrings
		dead, ready   int64
	}{
		"list mail":                         {2, exitSuccess, "ID   DIED", "", 2, 0},
		"list mail --limit=1":               {2, exitSuccess, "showing 1 of 2; --limit=0 lists all", "", 2, 0},
		"list mail -o yaml":                 {1, exitSuccess, "payload: bGV0dGVyIDE=", "", 1, 0},
		"list mail -o json":                 {0, exitSuccess, "[]\n", "", 0, 0},
		"ls mail":                           {0, exitSuccess, "", mail + " has no dead letters.\n", 0, 0},
		"show mail 2":                       {4, exitSuccess, "no such address", "", 4, 0},
		"show mail 9":                       {4, exitError, "", "it has no dead letter 9", 4, 0},
		"requeue mail 2":                    {4, exitSuccess, "", "", 3, 1},
		"requeue mail 3 9":                  {4, exitError, "", "1 of the 2 dead letters do not exist", 3, 1},
		"requeue mail --filter=elsewhere":   {4, exitSuccess, "", "", 4, 0},
		"requeue mail --filter=address":     {4, exitSuccess, "", "", 0, 4},
		"requeue mail --all":                {3, exitSuccess, mail + ": requeued 3 dead letters\n", "", 0, 3},
		"requeue mail --oldest=1":           {3, exitSuccess, mail + ": requeued 1 dead letter\n", "", 2, 1},
		"requeue mail --oldest=9":           {3, exitSuccess, mail + ": requeued 3 dead letters\n", "", 0, 3},
		"delete mail 1 3 --yes":             {3, exitSuccess, mail + ": deleted 2 dead letters\n", "", 1, 0},
		"delete mail 2 9 --yes":             {3, exitError, mail + ": deleted 1 dead letter\n", "1 of the 2 dead letters do not exist", 2, 0},
		"delete mail --filter=such --yes":   {3, exitSuccess, mail + ": deleted 3 dead letters\n", "", 0, 0},
		"delete mail --filter=other --yes":  {3, exitSuccess, mail + ": deleted 0 dead letters\n", "", 3, 0},
		"delete mail --yes":                 {3, exitError, "", "error: set either IDs or --filter\n", 3, 0},
		"delete mail 1 --filter=such --yes": {3, exitError, "", "error: set either IDs or --filter\n", 3, 0},
		"delete mail 0 --yes":               {3, exitError, "", `error: invalid ID "0"`, 3, 0},
		"delete mail 2":                     {3, exitError, "", "cannot delete 1 dead letter of " + mail + " without confirmation", 3, 0},
		"delete mail --filter=such":         {3, exitError, "", `cannot delete the dead letters with "such" of ` + mail + " without confirmation", 3, 0},
		"purge mail --all --yes":            {3, exitSuccess, mail + ": deleted 3 dead letters\n", "", 0, 0},
		"purge mail --all":                  {3, exitError, "", "error: " + mail + ": cannot delete 3 dead letters of " + mail + " without confirmation: set --yes, or run on a terminal\n", 3, 0},
		"purge mail --all --yes -v=9":       {3, exitError, "", "error: unknown shorthand flag", 3, 0},
	} {
		t.Run(args, func(t *testing.T) {
			g := newDeadLetterBroker(t, row.letters)
			code, out, errOut := runPlugin(t, "queue dead "+args, natsQueue("mail"), natsSecret(g.clientURL()))
			require.True(t, code == row.code && strings.Contains(out, row.out) && strings.Contains(errOut, row.errOut), outcome, code, out, errOut)
			require.True(t, !strings.Contains(out, "\x1b"), "a dead letter wrote an escape sequence: %q", out)
			g.expectCounts(row.dead, row.ready)
		})
	}
}

func TestDeadLettersFindTheBroker(t *testing.T) {
	g := newDeadLetterBroker(t, 1)
	hub, leaf := natstest.StartLeaf(t)
	newDeadLetterBrokerOn(t, hub, 1)
	inHub := func(q *v1alpha1.Queue) {
		q.Spec.Broker.NATS = &v1alpha1.NATSConnection{JetStreamDomain: natstest.HubDomain}
	}
	noBroker := func(q *v1alpha1.Queue) { q.Spec.Broker = nil }
	defaults := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "defaults", Namespace: "a"}}
	defaults.Spec.Defaults = &v1alpha1.PolicyDefaults{QueueSettings: v1alpha1.QueueSettings{Broker: natsQueue("mail").Spec.Broker}}
	conflict := func(q *v1alpha1.Queue) {
		q.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigSynced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonOwnedByOtherQueue}}
	}
	for title, row := range map[string]struct {
		args    string
		objects []client.Object
		code    int
		errOut  string
	}{
		"from the Queue's Secret":                    {"", []client.Object{natsQueue("mail"), natsSecret(g.clientURL())}, exitSuccess, ""},
		"from a Policy":                              {"", []client.Object{natsQueue("mail", noBroker), defaults, natsSecret(g.clientURL())}, exitSuccess, ""},
		"from another JetStream domain":              {"", []client.Object{natsQueue("mail", inHub), natsSecret(leaf.ClientURL())}, exitSuccess, ""},
		"a flag overrides the Secret":                {"--broker-url=" + g.clientURL(), []client.Object{natsQueue("mail"), natsSecret("nats://127.0.0.1:1")}, exitSuccess, ""},
		"a flag without a Secret":                    {"--broker-url=" + g.clientURL(), []client.Object{natsQueue("mail", noBroker)}, exitSuccess, ""},
		"the operator's default broker needs a flag": {"", []client.Object{natsQueue("mail", noBroker)}, exitError, "it uses the operator's default broker, whose address users cannot read: set --broker-url"},
		"a missing Secret":                           {"", []client.Object{natsQueue("mail")}, exitError, `Secret "nats" not found`},
		"a broker that does not answer":              {"", []client.Object{natsQueue("mail"), natsSecret("nats://127.0.0.1:1")}, exitError, "connection refused"},
		"an invalid URL, without its password":       {"", []client.Object{natsQueue("mail"), natsSecret("nats://me:pass%word@x")}, exitError, "url is not a valid URL"},
		"a queue of another Queue":                   {"", []client.Object{natsQueue("mail", conflict), natsSecret(g.clientURL())}, exitError, "another Queue owns the queue mail on the broker"},
		"a queue that does not exist on the broker":  {"", []client.Object{natsQueue("video"), natsSecret(g.clientURL())}, exitError, "the queue video"},
	} {
		t.Run(title, func(t *testing.T) {
			code, out, errOut := runPlugin(t, "queue dead list "+row.objects[0].GetName()+" "+row.args, row.objects...)
			require.True(t, code == row.code && strings.Contains(errOut, row.errOut) && !strings.Contains(errOut, "pass"), outcome, code, out, errOut)
			require.True(t, code != exitSuccess || strings.Contains(out, "no such address"), "no dead letter in %q", out)
		})
	}
}

func TestOnlyTheNameConfirmsADeletion(t *testing.T) {
	for answer, isConfirmed := range map[string]bool{"mail\n": true, "  mail \n": true, "yes\n": false, "\n": false, "mail": false, "": false} {
		err := checkConfirmation(strings.NewReader(answer), "delete 3 dead letters", "mail")
		require.True(t, (err == nil) == isConfirmed, "answer %q: %v", answer, err)
	}
	require.True(t, !isInteractive(nil) && !isInteractive(io.Reader(strings.NewReader("mail\n"))), "a reader counts as a terminal")
}

func TestDetectEngine(t *testing.T) {
	asynq := &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq}
	found := natsQueue("mail", func(q *v1alpha1.Queue) { q.Status.Engine = v1alpha1.EngineAsynq })
	for title, row := range map[string]struct {
		queue   *v1alpha1.Queue
		broker  *v1alpha1.Broker
		address string
		want    dial.EngineName
	}{
		"from the broker reference":                  {natsQueue("mail"), asynq, "nats://x", dial.AsynqEngine},
		"from the status without a broker reference": {found, nil, "nats://x", dial.AsynqEngine},
		"from the URL without a status":              {natsQueue("mail"), nil, "rediss://x", dial.AsynqEngine},
		"NATS by default":                            {natsQueue("mail"), nil, "x:4222", dial.NATSEngine},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, detectEngine(row.queue, row.broker, row.address)) })
	}
}

func TestParseServiceHost(t *testing.T) {
	for host, want := range map[string]serviceHost{
		"nats":                                   {service: "nats", namespace: "a"},
		"nats.queues":                            {service: "nats", namespace: "queues"},
		"nats.queues.svc":                        {service: "nats", namespace: "queues"},
		"nats.queues.svc.cluster.local":          {service: "nats", namespace: "queues"},
		"nats.queues.svc.cluster.local.":         {service: "nats", namespace: "queues"},
		"nats-0.nats.queues.svc":                 {pod: "nats-0", service: "nats", namespace: "queues"},
		"nats-0.nats.queues.svc.cluster.example": {pod: "nats-0", service: "nats", namespace: "queues"},
		"127.0.0.1":                              {},
		"::1":                                    {},
		"nats.example.org":                       {},
		"connect.ngs.global.svcs.example.org":    {},
		"a.very.long.name.svc.of.somebody.else":  {},
	} {
		got, ok := parseServiceHost(host, "a")
		require.True(t, got == want && ok == (want != serviceHost{}), "%s is %+v (%t), want %+v", host, got, ok, want)
	}
}

func TestFindReadyPodBehindABrokerService(t *testing.T) {
	service := func(kind corev1.ServiceType, name string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "nats", Namespace: "queues"},
			Spec:       corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Name: name, Port: 4222}, {Name: "monitor", Port: 80}}},
		}
	}
	slice := func(ready bool, pods ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "nats-x", Namespace: "queues", Labels: map[string]string{discoveryv1.LabelServiceName: "nats"}},
			Ports:      []discoveryv1.EndpointPort{{Name: new("monitor"), Port: new(int32(8222))}, {Name: new("client"), Port: new(int32(14222))}},
		}
		for _, pod := range pods {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod},
			})
		}
		return s
	}
	const address = "nats://me:secret@nats.queues:4222"
	for title, row := range map[string]struct {
		address string
		objects []client.Object
		want    podPort
		err     string
	}{
		"a ready Pod at its own port": {address, []client.Object{service("", "client"), slice(true, "nats-0", "nats-1")}, podPort{"queues", "nats-0", 14222}, ""},
		"the Pod in the host name":    {"nats://nats-1.nats.queues.svc", []client.Object{service("", "client"), slice(true, "nats-0", "nats-1")}, podPort{"queues", "nats-1", 14222}, ""},
		"a port that the Service does not define": {
			"nats://nats.queues:5222", []client.Object{service("", "client"), slice(true, "nats-0")}, podPort{"queues", "nats-0", 5222}, "",
		},
		"a Pod that is not ready is ignored":  {address, []client.Object{service("", "client"), slice(false, "nats-0")}, podPort{}, "the broker's Service queues/nats has no ready Pod"},
		"no EndpointSlice":                    {address, []client.Object{service("", "client")}, podPort{}, "the broker's Service queues/nats has no ready Pod"},
		"an ExternalName Service":             {address, []client.Object{service(corev1.ServiceTypeExternalName, "client")}, podPort{}, ""},
		"no Service":                          {address, nil, podPort{}, ""},
		"a public host name":                  {"nats://nats.example.org", nil, podPort{}, ""},
		"an invalid port":                     {"nats://nats.queues:70000", []client.Object{service("", "client"), slice(true, "nats-0")}, podPort{}, errInvalidBrokerPort.Error()},
		"an EndpointSlice of another Service": {address, []client.Object{service("", "client"), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "queues"}}}, podPort{}, "has no ready Pod"},
	} {
		t.Run(title, func(t *testing.T) {
			parsed, err := url.Parse(row.address)
			require.NoError(t, err)
			c := &clusterConnection{WithWatch: newFakeClient(t, row.objects...), namespace: "a"}
			got, err := c.findReadyPod(t.Context(), parsed)
			require.True(t, (err == nil) == (row.err == "") && (err == nil || strings.Contains(err.Error(), row.err)), "error %v, want %q", err, row.err)
			if got == nil {
				got = &podPort{}
			}
			require.True(t, *got == row.want, "Pod port %+v, want %+v", *got, row.want)
		})
	}
}

func TestForwardedAccessUsesTheLocalPort(t *testing.T) {
	for title, row := range map[string]struct {
		access, want broker.Credentials
	}{
		"user and password":                   {broker.Credentials{URL: "nats://me:secret@nats.queues:4222"}, broker.Credentials{URL: "nats://me:secret@127.0.0.1:5000"}},
		"with the number of a Redis database": {broker.Credentials{URL: "redis://redis/3"}, broker.Credentials{URL: "redis://127.0.0.1:5000/3"}},
		"with the server name of the certificate": {
			broker.Credentials{URL: "tls://nats.queues"}, broker.Credentials{URL: "tls://127.0.0.1:5000", TLS: &broker.TLS{ServerName: "nats.queues"}},
		},
		"with the server name if only the Secret enables TLS": {
			broker.Credentials{URL: "nats://nats.queues", TLS: &broker.TLS{CA: []byte("x")}}, broker.Credentials{URL: "nats://127.0.0.1:5000", TLS: &broker.TLS{ServerName: "nats.queues", CA: []byte("x")}},
		},
	} {
		t.Run(title, func(t *testing.T) {
			address, err := url.Parse(row.access.URL)
			require.NoError(t, err)
			redirectToLocalPort(&row.access, address, 5000)
			require.Equal(t, row.want, row.access)
		})
	}
}

func TestABrokerURLReplacesSentinelsWhichCannotBeForwarded(t *testing.T) {
	secret := natsSecret("redis://sentinel:26379")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "sentinel", Namespace: "a"}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "sentinel-x", Namespace: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "sentinel"}},
		Endpoints:  []discoveryv1.Endpoint{{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "sentinel-0"}}},
	}
	c := &clusterConnection{WithWatch: newFakeClient(t, secret, service, slice), namespace: "a"}
	b := &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq, Sentinel: &v1alpha1.RedisSentinel{MasterName: "main"}}
	b.URLSecretRef.Name = "nats"
	access, err := brokerAccess(t.Context(), c, b, "")
	require.True(t, err == nil && access.Sentinel != nil, "%+v: %v", access, err)
	_, err = c.forwardToBroker(t.Context(), access)
	require.True(t, errors.Is(err, errForwardedSentinel), "got %v", err)
	if access, err = brokerAccess(t.Context(), c, b, "redis://127.0.0.1:1"); err != nil || access.Sentinel != nil || access.URL != "redis://127.0.0.1:1" {
		t.Errorf("with an address: %+v: %v", access, err)
	}
}
