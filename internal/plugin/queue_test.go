package plugin

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// queueOf the namespace a, on the broker that the Secret nats leads to.
func queueOf(name string, changes ...func(*v1alpha1.Queue)) *v1alpha1.Queue {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1"}}
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "nats"
	for _, change := range changes {
		change(q)
	}
	return q
}

func paused(q *v1alpha1.Queue) { q.Spec.Paused = true }

func natsSecret(url string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "nats", Namespace: "a"}, Data: map[string][]byte{"url": []byte(url)}}
}

func TestListsOfQueuesAndPools(t *testing.T) {
	labelled := queueOf("mail")
	labelled.Labels = map[string]string{"team": "data"}
	for args, row := range map[string]struct{ want, not, said string }{
		"queue list":                {want: "NAME    STATUS    READY"},
		"queue list -l team=data":   {want: "mail", not: "video"},
		"queue list -A":             {want: "a           video   Pending"},
		"queue list -o name":        {want: "queue.yardmaster.dev/mail\nqueue.yardmaster.dev/video\n", not: "NAME"},
		"queue list -o yaml":        {want: "kind: QueueList"},
		"queue list -n b":           {said: "No Queues found in namespace b.\n"},
		"queue list -n b -o json":   {want: `"items": []`},
		"queue list --color=always": {want: "\x1b[2mPending\x1b[0m"},
		"pool list":                 {want: "mailers   Pending   0/0"},
		"pool list -o name":         {want: "workerpool.yardmaster.dev/mailers\n", not: "NAME"},
		"pool list -o json":         {want: `"kind": "WorkerPoolList"`},
		"pool list -A -l team=none": {said: "No WorkerPools found.\n"},
		"wp ls":                     {want: "mailers"},
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := call(t, args, labelled, queueOf("video"), poolOf("mailers", 3))
			if code != exitSuccess || !strings.Contains(out, row.want) || row.not != "" && strings.Contains(out, row.not) {
				t.Errorf("code %d:\n%s", code, out)
			}
			if errOut != row.said {
				t.Errorf("it says %q, want %q", errOut, row.said)
			}
		})
	}
}

func TestWhatIsRefusedAboutQueuesAndPools(t *testing.T) {
	for args, want := range map[string]string{
		"queue list -o wide":                     `--output is "wide", must be one of [table json yaml name]`,
		"queue pause":                            "requires at least 1 arg(s)",
		"queue dead list mail --limit=-1":        "--limit is -1, must be 0 for all, or more",
		"queue dead list mail -o name":           `--output is "name", must be one of [table json yaml]`,
		"queue dead requeue mail":                "give either --all or --oldest",
		"queue dead requeue mail --all --oldest": "flag needs an argument",
		"queue dead requeue mail --oldest=-1":    "--oldest is -1, must be 1 or more",
		"queue dead purge mail --yes":            "--all is needed",
		"queue dead list mail":                   `queues.yardmaster.dev "mail" not found`,
		"pool watch mailers -A":                  "a NAME cannot stand with --all-namespaces or --selector",
		"pool watch mailers":                     `workerpools.yardmaster.dev "mailers" not found`,
		"pool explain":                           "accepts 1 arg(s), received 0",
		"pool drain mailers --replicas=-1":       "--replicas is -1, must not be negative",
		"pool drain mailers --dry-run -w":        "--watch cannot stand with --dry-run",
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := call(t, args)
			if code != exitError || out != "" || !strings.HasPrefix(errOut, "error: ") || !strings.Contains(errOut, want) {
				t.Errorf("code %d, out %q, says %q", code, out, errOut)
			}
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	for args, row := range map[string]struct {
		code      int
		out, said string
		paused    []string
	}{
		"pause mail":         {exitSuccess, "queue.yardmaster.dev/mail paused\n", "", []string{"held", "mail"}},
		"pause held":         {exitSuccess, "queue.yardmaster.dev/held was paused already\n", "", []string{"held"}},
		"resume held":        {exitSuccess, "queue.yardmaster.dev/held resumed\n", "", nil},
		"resume mail":        {exitSuccess, "queue.yardmaster.dev/mail is not paused\n", "", []string{"held"}},
		"pause no-such mail": {exitError, "queue.yardmaster.dev/mail paused\n", "error: queues.yardmaster.dev \"no-such\" not found\n", []string{"held", "mail"}},
	} {
		t.Run(args, func(t *testing.T) {
			c := cluster(t, queueOf("held", paused), queueOf("mail"))
			code, out, errOut := callWith(t, "queue "+args, c)
			if code != row.code || out != row.out || errOut != row.said {
				t.Errorf("code %d, out %q, says %q", code, out, errOut)
			}
			var list v1alpha1.QueueList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			var are []string
			for i := range list.Items {
				if list.Items[i].Spec.Paused {
					are = append(are, list.Items[i].Name)
				}
			}
			slices.Sort(are)
			if diff := cmp.Diff(row.paused, are); diff != "" {
				t.Errorf("paused (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPauseDoesNotOverwriteAConcurrentChange(t *testing.T) {
	c := interceptor.NewClient(cluster(t, queueOf("mail")), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			other := &v1alpha1.Queue{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), other); err != nil {
				return err
			}
			other.Spec.StrictPriority = true
			if err := c.Update(ctx, other); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	code, out, errOut := callWith(t, "queue pause mail", c)
	if code != exitError || out != "" || !strings.Contains(errOut, "queue.yardmaster.dev/mail was changed by somebody else in this moment; nothing was written") {
		t.Errorf("code %d, out %q, says %q", code, out, errOut)
	}
}

func TestCompletionOfQueuesAndPools(t *testing.T) {
	for args, want := range map[string]string{
		"queue pause mail":     "video\n:4\n",
		"queue dead list":      "mail\nvideo\n:4\n",
		"queue dead list mail": ":4\n",
		"pool explain":         "mailers\n:4\n",
		"pool watch mailers":   ":4\n",
	} {
		t.Run(args, func(t *testing.T) {
			words := append(append([]string{"__complete"}, strings.Fields(args)...), "")
			code, out, _ := callWords(t, words, cluster(t, queueOf("mail"), queueOf("video"), poolOf("mailers", 1)))
			if diff := cmp.Diff(want, out); diff != "" || code != exitSuccess {
				t.Errorf("code %d, completed (-want +got):\n%s", code, diff)
			}
		})
	}
}
