package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// failed is a sequence whose step load failed a minute before noon.
func failed(name string) *v1alpha1.SequentialJob {
	sj := testbuilder.SequentialJob(name, "a").Step("extract").Step("load").Obj()
	sj.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
	began, ended := metav1.NewTime(noon.Add(-2*time.Minute)), metav1.NewTime(noon.Add(-time.Minute))
	sj.Status = v1alpha1.SequentialJobStatus{
		Phase: v1alpha1.PhaseFailed, Run: 1, StartTime: &began, CompletionTime: &ended, Progress: v1alpha1.Progress{Display: "1/2"},
		Steps: []v1alpha1.StepStatus{
			{Name: "extract", Phase: v1alpha1.StepSucceeded, Run: 1}, {Name: "load", Phase: v1alpha1.StepFailed, Run: 1},
		},
	}
	return sj
}

func TestListIsByNamespaceAndName(t *testing.T) {
	other := failed("audit")
	other.Namespace = "b"
	code, out, _ := call(t, "seq list -A", failed("etl"), other, failed("backup"))
	want := `NAMESPACE   NAME     STATUS   STEPS   STEP      TIME   AGE
a           backup   Failed   ✔✘                1m0s   60m
a           etl      Failed   ✔✘                1m0s   60m
b           audit    Failed   ✔✘                1m0s   60m
`
	if diff := cmp.Diff(want, out); diff != "" || code != exitSuccess {
		t.Errorf("code %d, list (-want +got):\n%s", code, diff)
	}
}

func TestList(t *testing.T) {
	labelled := failed("etl")
	labelled.Labels = map[string]string{"team": "data"}
	for args, row := range map[string]struct{ want, not, said string }{
		"seq list":                 {want: "backup"},
		"seq list -l team=data":    {want: "etl", not: "backup"},
		"seq list -o name":         {want: "sequentialjob.yardmaster.dev/backup\nsequentialjob.yardmaster.dev/etl\n", not: "NAME"},
		"seq list -o yaml":         {want: "kind: SequentialJobList"},
		"seq list -n b":            {said: "No SequentialJobs found in namespace b.\n"},
		"seq list -n b -o name":    {},
		"seq list -n b -o json":    {want: `"items": []`},
		"seq list --color=always":  {want: "\x1b[31mFailed\x1b[0m"},
		"seq list -A -l team=none": {said: "No SequentialJobs found.\n"},
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := call(t, args, labelled, failed("backup"))
			if code != exitSuccess || !strings.Contains(out, row.want) || row.not != "" && strings.Contains(out, row.not) {
				t.Errorf("code %d:\n%s", code, out)
			}
			if errOut != row.said {
				t.Errorf("it says %q, want %q", errOut, row.said)
			}
		})
	}
}

func TestWhatIsRefusedBeforeTheClusterIsAsked(t *testing.T) {
	for args, want := range map[string]string{
		"seq list -o wide":            `--output is "wide", must be one of [table json yaml name]`,
		"seq list -l a==b==c":         "--selector: ",
		"seq list etl":                `unknown command "etl"`,
		"seq watch etl --all":         "a NAME cannot stand with --all",
		"seq logs etl --tail=-2":      "--tail is -2, must be -1 for all lines, or more",
		"seq logs etl --since=-1m":    "--since is -1m0s, must not be negative",
		"seq logs":                    "accepts 1 arg(s), received 0",
		"seq suspend":                 "requires at least 1 arg(s)",
		"seq nothing":                 `unknown command "nothing"`,
		"seq list --color=red":        `--color is "red", must be one of [auto always never]`,
		"seq logs etl --step=extract": `sequentialjobs.yardmaster.dev "etl" not found`,
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := call(t, args)
			if code != exitError || out != "" || !strings.HasPrefix(errOut, "error: ") || !strings.Contains(errOut, want) {
				t.Errorf("code %d, out %q, says %q", code, out, errOut)
			}
			if strings.Count(errOut, "\n") != 1 {
				t.Errorf("not one line: %q", errOut)
			}
		})
	}
}

func TestLogsOfAStepThatIsNoneAreRefused(t *testing.T) {
	code, _, errOut := call(t, "seq logs etl --step=transform", failed("etl"))
	if code != exitError || errOut != "error: --step is \"transform\", must be one of [extract load]\n" {
		t.Errorf("code %d, says %q", code, errOut)
	}
}

func TestRerun(t *testing.T) {
	running := failed("etl")
	running.Status.CompletionTime, running.Status.Phase = nil, v1alpha1.PhaseRunning
	deleted := failed("etl")
	deleted.Finalizers, deleted.DeletionTimestamp = []string{v1alpha1.SequentialJobFinalizer}, new(metav1.NewTime(noon))
	asked := failed("etl")
	asked.Spec.Rerun = &v1alpha1.Rerun{ID: "2", From: v1alpha1.RerunFromStart}
	suspended := failed("etl")
	suspended.Spec.Suspend = true
	again := failed("etl")
	again.Status.RerunID = "2"
	again.Spec.Rerun = &v1alpha1.Rerun{ID: "2"}

	const refused = "error: sequentialjob.yardmaster.dev/etl: cannot rerun"
	for name, row := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		args string
		from string // of the request that is written, if any
		out  string
		said string
	}{
		"from the step that failed":      {failed("etl"), "--id=7", "Failed", "sequentialjob.yardmaster.dev/etl runs again from Failed: run 2, id 7\n", ""},
		"from the start":                 {failed("etl"), "--id=7 --from=Start", "Start", "sequentialjob.yardmaster.dev/etl runs again from Start: run 2, id 7\n", ""},
		"from a step":                    {failed("etl"), "--id=7 --from=load", "load", "sequentialjob.yardmaster.dev/etl runs again from load: run 2, id 7\n", ""},
		"a suspended one waits":          {suspended, "--id=7", "Failed", "sequentialjob.yardmaster.dev/etl runs again from Failed: run 2, id 7\n", "sequentialjob.yardmaster.dev/etl is suspended: it begins when it is resumed\n"},
		"not one that runs":              {running, "", "", "", refused + ": its run has not ended, it is Running\n"},
		"not one that is being deleted":  {deleted, "", "", "", refused + ": it is being deleted\n"},
		"not one that is about to":       {asked, "", "", "", refused + ": another rerun is about to begin, with the id \"2\"\n"},
		"not with the id of the last":    {again, "--id=2", "", "", refused + ": the id \"2\" was that of the last rerun; choose another with --id\n"},
		"not from a step that is not":    {failed("etl"), "--from=transform", "", "", refused + " from step \"transform\": no step in containers has this name\n"},
		"not from what is no step's way": {failed("etl"), "--from=failed", "", "", refused + " from step \"failed\": no step in containers has this name\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, row.sj)
			_, out, errOut := callWith(t, "seq rerun etl "+row.args, c)
			if out != row.out || errOut != row.said {
				t.Errorf("out %q, says %q", out, errOut)
			}
			after := &v1alpha1.SequentialJob{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(row.sj), after); err != nil {
				t.Fatal(err)
			}
			if row.from == "" {
				if diff := cmp.Diff(row.sj.Spec, after.Spec); diff != "" {
					t.Errorf("it was refused, and something was written (-before +after):\n%s", diff)
				}
			} else if diff := cmp.Diff(&v1alpha1.Rerun{ID: "7", From: row.from}, after.Spec.Rerun); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheIDOfARerunIsOfTheTimeAndChance(t *testing.T) {
	r := rerunCommand{environment: &environment{now: func() time.Time { return noon }}}
	one, two := r.newRequestID(), r.newRequestID()
	if one == two || !strings.HasPrefix(one, "20260301-120000-") || len(one) > 63 {
		t.Errorf("ids %q and %q", one, two)
	}
}

func TestARerunDoesNotOverwriteAConcurrentChange(t *testing.T) {
	c := interceptor.NewClient(cluster(t, failed("etl")), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			other := &v1alpha1.SequentialJob{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), other); err != nil {
				return err
			}
			other.Spec.Containers[1].Image = "registry.example/load:2"
			if err := c.Update(ctx, other); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	code, out, errOut := callWith(t, "seq rerun etl", c)
	if code != exitError || out != "" || !strings.Contains(errOut, "was changed by somebody else in this moment; nothing was written") {
		t.Errorf("code %d, out %q, says %q", code, out, errOut)
	}
	after := &v1alpha1.SequentialJob{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "etl"}, after); err != nil {
		t.Fatal(err)
	}
	if after.Spec.Rerun != nil || after.Spec.Containers[1].Image != "registry.example/load:2" {
		t.Errorf("spec %+v", after.Spec)
	}
}

func TestSuspendAndResume(t *testing.T) {
	held := testbuilder.SequentialJob("held", "a").Step("load").Suspend().Obj()
	free := testbuilder.SequentialJob("free", "a").Step("load").Obj()
	for args, row := range map[string]struct {
		code      int
		out, said string
		suspended []string
	}{
		"suspend free":         {exitSuccess, "sequentialjob.yardmaster.dev/free suspended\n", "", []string{"free", "held"}},
		"suspend held":         {exitSuccess, "sequentialjob.yardmaster.dev/held was suspended already\n", "", []string{"held"}},
		"resume held":          {exitSuccess, "sequentialjob.yardmaster.dev/held resumed\n", "", nil},
		"resume free":          {exitSuccess, "sequentialjob.yardmaster.dev/free is not suspended\n", "", []string{"held"}},
		"suspend no-such free": {exitError, "sequentialjob.yardmaster.dev/free suspended\n", "error: sequentialjobs.yardmaster.dev \"no-such\" not found\n", []string{"free", "held"}},
		"suspend over":         {exitSuccess, "sequentialjob.yardmaster.dev/over suspended; its run has ended, and the next one will be held\n", "", []string{"held", "over"}},
	} {
		t.Run(args, func(t *testing.T) {
			c := cluster(t, held, free, failed("over"))
			code, out, errOut := callWith(t, "seq "+args, c)
			if code != row.code || out != row.out || errOut != row.said {
				t.Errorf("code %d, out %q, says %q", code, out, errOut)
			}
			var list v1alpha1.SequentialJobList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			var suspended []string
			for i := range list.Items {
				if list.Items[i].Spec.Suspend {
					suspended = append(suspended, list.Items[i].Name)
				}
			}
			slices.Sort(suspended)
			if diff := cmp.Diff(row.suspended, suspended); diff != "" {
				t.Errorf("suspended (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"seq watch":                    "backup\tFailed\netl\tFailed\n:4\n",
		"seq watch etl":                ":4\n",
		"seq suspend etl":              "backup\tFailed\n:4\n",
		"seq watch -n b":               ":4\n",
		"seq rerun etl --from":         "Failed\nStart\nextract\nload\n:4\n",
		"seq rerun no-such-one --from": "Failed\nStart\n:4\n",
		"seq logs etl --step":          "extract\nload\n:4\n",
	} {
		t.Run(args, func(t *testing.T) {
			// What is completed is an empty word, which stands last.
			code, out, _ := callWords(t, append(append([]string{"__complete"}, strings.Fields(args)...), ""), cluster(t, failed("etl"), failed("backup")))
			if diff := cmp.Diff(want, out); diff != "" || code != exitSuccess {
				t.Errorf("code %d, completed (-want +got):\n%s", code, diff)
			}
		})
	}
}

func TestAnErrorIsALineForEachThingThatWentWrong(t *testing.T) {
	kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "SequentialJob"}
	notFound := apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: "sequentialjobs"}, "x")
	for name, row := range map[string]struct {
		err  error
		want []string
	}{
		"as the API server says it":             {notFound, []string{`sequentialjobs.yardmaster.dev "x" not found`}},
		"several, several":                      {errors.Join(errors.New("one"), errors.New("two")), []string{"one", "two"}},
		"on one line":                           {errors.New("one\ntwo"), []string{"one two"}},
		"a cluster without the kind":            {&meta.NoKindMatchError{GroupKind: kind}, []string{notInstalledMessage}},
		"... also when it is asked in a watch":  {&meta.NoResourceMatchError{}, []string{notInstalledMessage}},
		"... and said only once, however often": {errors.Join(&meta.NoResourceMatchError{}, &meta.NoResourceMatchError{}), []string{notInstalledMessage}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, describeError(row.err)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}
