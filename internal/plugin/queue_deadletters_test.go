package plugin

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	engine "github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// deadLetterBroker is a NATS server with a queue mail that has dead letters.
type deadLetterBroker struct {
	*natstest.Server
	t      *testing.T
	engine broker.Engine
}

func newDeadLetterBroker(t *testing.T, letters int) *deadLetterBroker {
	t.Helper()
	return newDeadLetterBrokerOn(t, natstest.Start(t), letters)
}

func newDeadLetterBrokerOn(t *testing.T, s *natstest.Server, letters int) *deadLetterBroker {
	t.Helper()
	g := &deadLetterBroker{Server: s, t: t}
	e, err := engine.Connect(t.Context(), broker.Credentials{URL: g.clientURL()})
	require.NoError(t, err)
	t.Cleanup(e.Disconnect)
	g.engine = e
	config := broker.DefaultQueueConfig("mail")
	config.Owner = broker.QueueOwner{UID: "1", Name: "a/mail"}
	if _, err := e.EnsureQueue(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	g.addDeadLetters(letters)
	return g
}

func (g *deadLetterBroker) clientURL() string { return "nats://" + g.Address() }

// addDeadLetters publishes dead letters as workers do.
func (g *deadLetterBroker) addDeadLetters(letters int) {
	g.t.Helper()
	js := g.JetStream()
	for i := range letters {
		message := nats.NewMsg("yardmaster.mail.dead.default")
		message.Data = fmt.Appendf(nil, "letter %d", i+1)
		message.Header.Set("Yardmaster-Error", "no such address\x1b[2J")
		message.Header.Set("Yardmaster-Attempts", "5")
		if _, err := js.PublishMsg(g.t.Context(), message); err != nil {
			g.t.Fatal(err)
		}
	}
}

// expectCounts waits for the numbers of dead letters and ready messages. A NATS server counts
// the ready messages of a consumer asynchronously.
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
		letters     int
		code        int
		out, errOut string // substrings
		dead, ready int64
	}{
		"list mail":                         {2, exitSuccess, "ID   DIED", "", 2, 0},
		"list mail --limit=1":               {2, exitSuccess, "showing 1 of 2; --limit=0 lists all", "", 2, 0},
		"list mail -o yaml":                 {1, exitSuccess, "payload: bGV0dGVyIDE=", "", 1, 0},
		"list mail -o json":                 {0, exitSuccess, "[]\n", "", 0, 0},
		"ls mail":                           {0, exitSuccess, "", mail + " has no dead letters.\n", 0, 0},
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
			if code != row.code || !strings.Contains(out, row.out) || !strings.Contains(errOut, row.errOut) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
			}
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
			if code != row.code || !strings.Contains(errOut, row.errOut) || strings.Contains(errOut, "pass") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
			}
			require.True(t, code != exitSuccess || strings.Contains(out, "no such address"), "no dead letter in %q", out)
		})
	}
}

func TestOnlyTheNameConfirmsADeletion(t *testing.T) {
	for answer, isConfirmed := range map[string]bool{"mail\n": true, "  mail \n": true, "yes\n": false, "\n": false, "mail": false, "": false} {
		if err := checkConfirmation(strings.NewReader(answer), "delete 3 dead letters", "mail"); (err == nil) != isConfirmed {
			t.Errorf("answer %q: %v", answer, err)
		}
	}
	if isInteractive(nil) || isInteractive(io.Reader(strings.NewReader("mail\n"))) {
		t.Error("a reader that is not a terminal counts as interactive")
	}
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
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, detectEngine(row.queue, row.broker, row.address))
		})
	}
}
