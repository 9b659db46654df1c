package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// unstartedJob returns a Job that has never started.
func unstartedJob(namespace, name string, age time.Duration) *batchv1.Job {
	job := &batchv1.Job{}
	job.Namespace, job.Name = namespace, name
	job.CreationTimestamp = metav1.NewTime(testTime.Add(-age))
	return job
}

var staleTestJobs = []client.Object{
	unstartedJob("a", "dead", 48*time.Hour), unstartedJob("a", "slow", time.Hour), unstartedJob("a", "new", time.Second), unstartedJob("b", "late", 2*time.Hour),
}

func TestReportListsTheWorstJobsFirst(t *testing.T) {
	_, out, _ := runPlugin(t, "report", staleTestJobs...)
	want := `NAMESPACE   JOB    CATEGORY     REASON         FOR   MESSAGE
a           dead   Zombie       NeverStarted   2d    waiting to be started since 2026-02-27T12:00:00Z; no startTime
a           slow   Suspicious   NeverStarted   60m   waiting to be started since 2026-03-01T11:00:00Z; no startTime

3 Jobs: 1 healthy, 1 suspicious, 1 zombie
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestReportTable(t *testing.T) {
	for name, row := range map[string]struct {
		args string
		want []string
		not  string
	}{
		"all namespaces":             {"report -A", []string{"\na ", "\nb ", "4 Jobs: 1 healthy, 2 suspicious, 1 zombie"}, "not shown"},
		"another namespace":          {"report -n b", []string{"late", "1 Jobs: 0 healthy"}, "dead"},
		"a namespace without Jobs":   {"report -n c", []string{"0 Jobs: 0 healthy, 0 suspicious, 0 zombie"}, "NAMESPACE"},
		"only the worst":             {"report --top=1", []string{"dead", "; 1 not shown"}, "slow"},
		"with colors on request":     {"report --color=always", []string{"\x1b[31mZombie\x1b[0m", "\x1b[33mSuspicious\x1b[0m"}, "\x1b[31mSuspicious"},
		"without colors in a pipe":   {"report", []string{"Zombie"}, "\x1b"},
		"with thresholds from flags": {"report --never-started-zombie-after=30m", []string{"2 zombie"}, "Suspicious"},
	} {
		t.Run(name, func(t *testing.T) {
			_, out, _ := runPlugin(t, row.args, staleTestJobs...)
			for _, want := range row.want {
				if !strings.Contains(out, want) {
					t.Errorf("missing %q:\n%s", want, out)
				}
			}
			if strings.Contains(out, row.not) {
				t.Errorf("unexpected %q:\n%s", row.not, out)
			}
		})
	}
}

func TestReportExitCode(t *testing.T) {
	for args, want := range map[string]int{
		"report":                                  exitUnsuccessful,
		"report -n b":                             exitSuccess,
		"report -n b --fail-on=suspicious":        exitUnsuccessful,
		"report --fail-on=suspicious":             exitUnsuccessful,
		"report --fail-on=never":                  exitSuccess,
		"report -o json":                          exitUnsuccessful,
		"report -n c --fail-on=suspicious":        exitSuccess,
		"report --fail-on=always":                 exitError,
		"report -o wide":                          exitError,
		"report --color=red":                      exitError,
		"report --top=501":                        exitError,
		"report --no-such-flag":                   exitError,
		"report something":                        exitError,
		"report --no-ready-pods-zombie-after=-1s": exitError,
	} {
		t.Run(args, func(t *testing.T) {
			code, _, errOut := runPlugin(t, args, staleTestJobs...)
			if code != want {
				t.Errorf("exit code %d, want %d: %s", code, want, errOut)
			}
			if (errOut != "") != (want == exitError) {
				t.Errorf("stderr %q", errOut)
			}
		})
	}
}

func TestReportFailsIfJobsCannotBeListed(t *testing.T) {
	failing := interceptor.NewClient(newFakeClient(t), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("forbidden")
		},
	})
	code, out, errOut := runPluginWith(t, "report", failing)
	if code != exitError || out != "" || !strings.Contains(errOut, "listing Jobs, page 1: forbidden") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
}

func TestReportPrintsJobReportsAsJSONAndYAML(t *testing.T) {
	_, raw, _ := runPlugin(t, "report -o json", staleTestJobs...)
	var one v1alpha1.JobReport
	if err := json.Unmarshal([]byte(raw), &one); err != nil {
		t.Fatal(err)
	}
	if one.Kind != "JobReport" || one.Namespace != "a" || one.Status.Summary.Total != 3 || len(one.Status.Findings) != 2 {
		t.Errorf("report %+v", one)
	}
	_, raw, _ = runPlugin(t, "report -A -o yaml", staleTestJobs...)
	var list v1alpha1.JobReportList
	if err := yaml.UnmarshalStrict([]byte(raw), &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "JobReportList" || len(list.Items) != 2 || list.Items[1].Namespace != "b" {
		t.Errorf("reports %+v", list)
	}
	_, raw, _ = runPlugin(t, "report -A -o json")
	if !strings.Contains(raw, `"items": []`) {
		t.Errorf("without Jobs: %s", raw)
	}
}
