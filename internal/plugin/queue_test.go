package plugin

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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

func suspendQueue(q *v1alpha1.Queue) { q.Spec.Suspend = true }

func natsSecret(url string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "nats", Namespace: "a", Labels: map[string]string{v1alpha1.LabelBroker: "true"}},
		Data:       map[string][]byte{"url": []byte(url)},
	}
}

func TestPauseAndResumeQueues(t *testing.T) {
	for args, row := range map[string]struct {
		code        int
		out, errOut string
		suspended   []string
	}{
		"suspend mail":         {exitSuccess, "queue.yardmaster.dev/mail suspended\n", "", []string{"halted", "mail"}},
		"suspend halted":       {exitSuccess, "queue.yardmaster.dev/halted is already suspended\n", "", []string{"halted"}},
		"resume halted":        {exitSuccess, "queue.yardmaster.dev/halted resumed\n", "", nil},
		"resume mail":          {exitSuccess, "queue.yardmaster.dev/mail is not suspended\n", "", []string{"halted"}},
		"suspend no-such mail": {exitError, "queue.yardmaster.dev/mail suspended\n", "error: queues.yardmaster.dev \"no-such\" not found\n", []string{"halted", "mail"}},
	} {
		t.Run(args, func(t *testing.T) {
			c := newFakeClient(t, natsQueue("halted", suspendQueue), natsQueue("mail"))
			code, out, errOut := runPluginWith(t, "queue "+args, c)
			if code != row.code || out != row.out || errOut != row.errOut {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
			}
			var list v1alpha1.QueueList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			var suspendedQueues []string
			for i := range list.Items {
				if list.Items[i].Spec.Suspend {
					suspendedQueues = append(suspendedQueues, list.Items[i].Name)
				}
			}
			slices.Sort(suspendedQueues)
			if diff := cmp.Diff(row.suspended, suspendedQueues); diff != "" {
				t.Errorf("suspended (-want +got):\n%s", diff)
			}
		})
	}
}
