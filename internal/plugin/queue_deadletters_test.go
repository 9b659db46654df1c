package plugin

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	engine "github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
)

// graveyard is a NATS server with a queue mail that has so many dead letters.
type graveyard struct {
	*natstest.Server
	t      *testing.T
	engine broker.Engine
}

func newGraveyard(t *testing.T, letters int) *graveyard {
	t.Helper()
	g := &graveyard{Server: natstest.Start(t), t: t}
	e, err := engine.Connect(t.Context(), broker.Credentials{URL: g.url()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Disconnect)
	g.engine = e
	wanted := broker.DefaultQueueConfig("mail")
	wanted.Owner = broker.QueueOwner{UID: "1", Name: "a/mail"}
	if _, err := e.EnsureQueue(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	g.bury(letters)
	return g
}

func (g *graveyard) url() string { return "nats://" + g.Address() }

// bury puts letters where workers put those they give up.
func (g *graveyard) bury(letters int) {
	g.t.Helper()
	conn, err := nats.Connect(g.url())
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		g.t.Fatal(err)
	}
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

// holds checks how many messages are dead, and how many ready.
func (g *graveyard) holds(dead, ready int64) {
	g.t.Helper()
	figures, err := g.engine.Stats(g.t.Context(), "mail")
	if err != nil {
		g.t.Fatal(err)
	}
	if figures.DeadLetters != dead || figures.Ready != ready {
		g.t.Errorf("%d dead and %d ready, want %d and %d", figures.DeadLetters, figures.Ready, dead, ready)
	}
}

func TestDeadLetters(t *testing.T) {
	const mail = "queue.yardmaster.dev/mail"
	for args, row := range map[string]struct {
		letters     int
		code        int
		out, said   string // what it begins with, or contains
		dead, ready int64
	}{
		"list mail":                   {2, exitSuccess, "ID   DIED", "", 2, 0},
		"list mail --limit=1":         {2, exitSuccess, "1 of 2 are shown; --limit=0 lists all", "", 2, 0},
		"list mail -o yaml":           {1, exitSuccess, "payload: bGV0dGVyIDE=", "", 1, 0},
		"list mail -o json":           {0, exitSuccess, "[]\n", "", 0, 0},
		"ls mail":                     {0, exitSuccess, "", mail + " has no dead letters.\n", 0, 0},
		"requeue mail --all":          {3, exitSuccess, mail + ": 3 dead letters given back to workers\n", "", 0, 3},
		"requeue mail --oldest=1":     {3, exitSuccess, mail + ": 1 dead letter given back to workers\n", "", 2, 1},
		"requeue mail --oldest=9":     {3, exitSuccess, mail + ": 3 dead letters given back to workers\n", "", 0, 3},
		"purge mail --all --yes":      {3, exitSuccess, mail + ": 3 dead letters dropped\n", "", 0, 0},
		"purge mail --all":            {3, exitError, "", "error: " + mail + ": to drop 3 dead letters of " + mail + " needs --yes, or a terminal to ask on\n", 3, 0},
		"purge mail --all --yes -v=9": {3, exitError, "", "error: unknown shorthand flag", 3, 0},
	} {
		t.Run(args, func(t *testing.T) {
			g := newGraveyard(t, row.letters)
			code, out, errOut := call(t, "queue dead "+args, queueOf("mail"), natsSecret(g.url()))
			if code != row.code || !strings.Contains(out, row.out) || !strings.Contains(errOut, row.said) {
				t.Errorf("code %d, out %q, says %q", code, out, errOut)
			}
			if strings.Contains(out, "\x1b") {
				t.Errorf("a letter writes to the terminal: %q", out)
			}
			g.holds(row.dead, row.ready)
		})
	}
}

func TestWhereTheBrokerOfDeadLettersIs(t *testing.T) {
	g := newGraveyard(t, 1)
	elsewhere := func(q *v1alpha1.Queue) { q.Spec.Broker = nil }
	house := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "house", Namespace: "a"}}
	house.Spec.Defaults = &v1alpha1.PolicyDefaults{Broker: queueOf("mail").Spec.Broker}
	conflict := func(q *v1alpha1.Queue) {
		q.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConflict, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOwnedByOtherQueue}}
	}
	for title, row := range map[string]struct {
		args    string
		objects []client.Object
		code    int
		said    string
	}{
		"the Queue's Secret says":      {"", []client.Object{queueOf("mail"), natsSecret(g.url())}, exitSuccess, ""},
		"a Policy says":                {"", []client.Object{queueOf("mail", elsewhere), house, natsSecret(g.url())}, exitSuccess, ""},
		"a flag goes before a Secret":  {"--broker-url=" + g.url(), []client.Object{queueOf("mail"), natsSecret("nats://127.0.0.1:1")}, exitSuccess, ""},
		"a flag alone":                 {"--broker-url=" + g.url(), []client.Object{queueOf("mail", elsewhere)}, exitSuccess, ""},
		"the operator's own":           {"", []client.Object{queueOf("mail", elsewhere)}, exitError, "it is on the operator's own broker, whose address is not for everybody to read: give --broker-url"},
		"a Secret that is not there":   {"", []client.Object{queueOf("mail")}, exitError, `Secret "nats" not found`},
		"a broker that is not there":   {"", []client.Object{queueOf("mail"), natsSecret("nats://127.0.0.1:1")}, exitError, "connection refused"},
		"what is no URL, and a secret": {"", []client.Object{queueOf("mail"), natsSecret("nats://me:pass%word@x")}, exitError, "url is not a valid URL"},
		"a queue that is another's":    {"", []client.Object{queueOf("mail", conflict), natsSecret(g.url())}, exitError, "an older Queue has the queue mail on the broker"},
		"a queue that is not there":    {"", []client.Object{queueOf("video"), natsSecret(g.url())}, exitError, "the queue video"},
	} {
		t.Run(title, func(t *testing.T) {
			code, out, errOut := call(t, "queue dead list "+row.objects[0].GetName()+" "+row.args, row.objects...)
			if code != row.code || !strings.Contains(errOut, row.said) || strings.Contains(errOut, "pass") {
				t.Errorf("code %d, out %q, says %q", code, out, errOut)
			}
			if code == exitSuccess && !strings.Contains(out, "no such address") {
				t.Errorf("no letter in %q", out)
			}
		})
	}
}

func TestWhatCannotBeUndoneIsDoneOnlyForThatWord(t *testing.T) {
	for answer, agreed := range map[string]bool{"mail\n": true, "  mail \n": true, "yes\n": false, "\n": false, "mail": false, "": false} {
		if err := checkConfirmation(strings.NewReader(answer), "drop 3 dead letters", "mail"); (err == nil) != agreed {
			t.Errorf("answer %q: %v", answer, err)
		}
	}
	if isInteractive(nil) || isInteractive(io.Reader(strings.NewReader("mail\n"))) {
		t.Error("there is nobody to ask")
	}
}

func TestTheEngineOfABrokerIs(t *testing.T) {
	asynq := &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq}
	found := queueOf("mail", func(q *v1alpha1.Queue) { q.Status.Engine = v1alpha1.EngineAsynq })
	for title, row := range map[string]struct {
		queue   *v1alpha1.Queue
		broker  *v1alpha1.Broker
		address string
		want    dial.EngineName
	}{
		"what its reference says":    {queueOf("mail"), asynq, "nats://x", dial.AsynqEngine},
		"or what the operator found": {found, nil, "nats://x", dial.AsynqEngine},
		"or what the URL tells":      {queueOf("mail"), nil, "rediss://x", dial.AsynqEngine},
		"or the usual one":           {queueOf("mail"), nil, "x:4222", dial.NATSEngine},
	} {
		t.Run(title, func(t *testing.T) {
			if got := detectEngine(row.queue, row.broker, row.address); got != row.want {
				t.Errorf("engine %s, want %s", got, row.want)
			}
		})
	}
}
