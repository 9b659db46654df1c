package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// objectsOfEach is the number of SequentialJobs, AgenticSessions, Queues, WorkerPools and Schedules in each of the two namespaces of
// TestTheLogHasNoErrorsThatNeedNobody: 200 objects.
const objectsOfEach = 20

// 200 objects of five kinds are created, and changed by a user all the time, while one operator after another is killed or stopped and
// the next takes over. Then one of the two namespaces is deleted. An error in their logs would be something that somebody has to do
// something about, and nobody has.
func TestTheLogHasNoErrorsThatNeedNobody(t *testing.T) {
	kept, removed := cluster.NewNamespace(t, "log-", nil), cluster.NewNamespace(t, "log-", nil)
	url := natstest.Start(t).ClientURL()
	end := runOperators(t, 1, 3500*time.Millisecond, true, "--namespaces", kept+","+removed)
	for _, ns := range []string{kept, removed} {
		createObjects(t, ns, url)
	}
	changed := 0
	poll.Until(t, "the sequences to complete", func() bool {
		var list v1alpha1.SequentialJobList
		require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(kept)))
		completed := 0
		for i := range list.Items {
			// The others are those of Schedules.
			if len(list.Items[i].OwnerReferences) == 0 && list.Items[i].Status.Phase == v1alpha1.PhaseCompleted {
				completed++
			}
			changed++
			if changed%10 > 0 {
				continue
			}
			note := fmt.Sprintf(`{"metadata": {"annotations": {"example.com/note": "%d"}}}`, changed)
			require.NoError(t, cluster.Patch(t.Context(), &list.Items[i], client.RawPatch(types.MergePatchType, []byte(note))))
		}
		return completed == objectsOfEach
	})
	require.NoError(t, cluster.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: removed}}))
	// The Pods of a namespace that is being deleted stay until a kubelet reports their end, and so do workers.
	poll.Until(t, "the sequences to be deleted", func() bool {
		var list v1alpha1.SequentialJobList
		require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(removed)))
		return len(list.Items) == 0
	})
	lines, files := 0, end()
	for _, file := range files {
		lines += checkLog(t, file)
	}
	t.Logf("%d operators wrote %d lines", len(files), lines)
	cluster.RemoveFinalizers(t, kept, "Queue", "WorkerPool")
}

func createObjects(t *testing.T, ns, broker string) {
	t.Helper()
	secret := testbuilder.BrokerSecret(ns, "broker", "url", broker)
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = "runner:1", new(int64(65532))
	objects := []client.Object{secret, runner}
	for i := range objectsOfEach {
		name := metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("n%02d", i)}
		session := &v1alpha1.AgenticSession{ObjectMeta: name}
		session.Spec.Prompt, session.Spec.Interactive = "hello", true
		queue := &v1alpha1.Queue{ObjectMeta: name}
		queue.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
		queue.Spec.Broker.URLSecretRef.Name = secret.Name
		pool := &v1alpha1.WorkerPool{ObjectMeta: name}
		pool.Spec.Image, pool.Spec.Replicas, pool.Spec.Queues = "worker:1", new(int32(i%2)), []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: name.Name}}}
		schedule := &v1alpha1.Schedule{ObjectMeta: name}
		schedule.Spec.Schedule = "0 0 1 1 *"
		schedule.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers": [{"name": "a", "image": "a:1"}]}`)}}
		objects = append(objects, testbuilder.SequentialJob(name.Name, ns).Step("a").Step("b").Step("c").Obj(), session, queue, pool, schedule)
	}
	for _, object := range objects {
		require.NoError(t, cluster.Create(t.Context(), object))
	}
}

// checkLog checks that each line is JSON, and none of them an error. It returns the number of lines.
func checkLog(t *testing.T, file string) (lines int) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range bytes.Lines(raw) {
		lines++
		var entry struct{ Level, Msg string }
		switch err := json.Unmarshal(line, &entry); {
		case err != nil && !bytes.HasSuffix(line, []byte("\n")):
			// The operator was killed while it wrote the line.
		case err != nil || entry.Level == "" || entry.Msg == "":
			t.Errorf("%s: a line is not JSON: %s", file, line)
		case entry.Level == "error":
			t.Errorf("%s: %s", file, line)
		}
	}
	return lines
}

// What keeps the operator from starting is a line of its log, too.
func TestAnErrorAtTheStartIsALineOfTheLog(t *testing.T) {
	binary := buildOperator(t)
	for title, row := range map[string]struct {
		flags, environment []string
		want               string
	}{
		"a flag that does not exist":     {[]string{"--concurrencyy=3"}, nil, "concurrencyy"},
		"an invalid value":               {[]string{"--concurrency=many"}, nil, "concurrency"},
		"a variable that does not exist": {nil, []string{"YARDMASTER_DENY_CIDR=10.0.0.0/8"}, "YARDMASTER_DENY_CIDR"},
		"no cluster":                     {nil, []string{"KUBECONFIG=/dev/null/missing"}, "loading config file"},
		"a cluster that does not answer": {[]string{"--leader-elect=false", "--webhook=false"}, []string{"KUBECONFIG=" + unreachable(t)}, "connection refused"},
	} {
		t.Run(title, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), binary, row.flags...)
			command.Env = append(os.Environ(), row.environment...)
			var output bytes.Buffer
			command.Stdout, command.Stderr = &output, &output
			if err := command.Run(); err == nil {
				t.Error("the operator started")
			}
			last := ""
			for line := range strings.Lines(output.String()) {
				last = line
				var entry struct{ Level, Msg, Error string }
				if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg == "" {
					t.Errorf("a line is not JSON: %s", line)
				}
			}
			if !strings.Contains(last, `"level":"error"`) || !strings.Contains(strings.ToLower(last), row.want) && !strings.Contains(last, row.want) {
				t.Errorf("the last line is %s", last)
			}
		})
	}
}

// unreachable returns a kubeconfig of a cluster that does not answer.
func unreachable(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/kubeconfig"
	content := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}`
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
