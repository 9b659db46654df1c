package plugin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const outcome = "exit code %d, stdout %q, stderr %q"

func newFakeClient(t *testing.T, objects ...client.Object) client.WithWatch {
	scheme, err := newClientScheme()
	require.NoError(t, err)
	byInvolvedObject := func(object client.Object) []string {
		return []string{string(object.(*corev1.Event).InvolvedObject.UID)}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithReturnManagedFields().
		WithIndex(&corev1.Event{}, "involvedObject.uid", byInvolvedObject).Build()
}

// runPlugin runs the plugin for a cluster with these objects. Its kubeconfig selects namespace a.
func runPlugin(t *testing.T, args string, objects ...client.Object) (code int, out, errOut string) {
	return runPluginWith(t, args, newFakeClient(t, objects...))
}

func runPluginWith(t *testing.T, args string, c client.WithWatch) (code int, out, errOut string) {
	return runPluginArgs(t, strings.Fields(args), c)
}

func runPluginArgs(t *testing.T, words []string, c client.WithWatch) (code int, out, errOut string) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t))
	var stdout, stderr bytes.Buffer
	code = runCommand(t.Context(), words, &environment{
		out: &stdout, errOut: &stderr,
		now: func() time.Time { return testTime },
		connect: func(config clientcmd.ClientConfig) (*clusterConnection, error) {
			namespace, _, err := config.Namespace()
			return &clusterConnection{WithWatch: c, namespace: namespace}, err
		},
	})
	return code, stdout.String(), stderr.String()
}

func writeKubeconfig(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", Namespace: "a"}
	config.CurrentContext = "c"
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

func TestVersionNeedsNoCluster(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, 0, Run(t.Context(), []string{"version", "--kubeconfig", "missing"}, &out, io.Discard))
	require.True(t, strings.HasPrefix(out.String(), "kubectl-yardmaster ") && strings.Count(out.String(), "\n") == 1, "printed %q", out.String())
}

func TestCommandsRejectInvalidArguments(t *testing.T) {
	for args, want := range map[string]string{
		"seq list -o xml":                        `invalid --output "xml": must be one of table, wide, json, yaml, name`,
		"seq list -l a==b==c":                    "--selector: ",
		"seq list etl":                           `sequentialjobs.yardmaster.dev "etl" not found`,
		"seq watch etl -l x":                     "a NAME cannot be combined with --all-namespaces or --selector",
		"seq logs etl --tail=-2":                 "invalid --tail -2: must be -1 (all lines) or greater",
		"seq logs etl --since=-1m":               `invalid argument "-1m" for "--since" flag: invalid duration "-1m"`,
		"seq logs":                               "accepts 1 arg(s), received 0",
		"seq suspend":                            "requires at least 1 arg(s)",
		"seq nothing":                            `unknown command "nothing"`,
		"seq list --color=red":                   `invalid --color "red": must be one of auto, always, never`,
		"seq logs etl --step=extract":            `sequentialjobs.yardmaster.dev "etl" not found`,
		"seq logs known --step=transform":        `invalid --step "transform": must be one of extract, load`,
		"seq create":                             "accepts 1 arg(s), received 0",
		"seq create etl":                         "set --image and at least one --step",
		"seq create etl --image x --step load":   `invalid --step "load": must be NAME=SCRIPT`,
		"session create fix":                     "set either --prompt or --prompt-file",
		"session create fix --prompt-file /none": "open /none: no such file or directory",
		"session list -o xml":                    `invalid --output "xml": must be one of table, wide, json, yaml, name`,
		"session watch tidy -A":                  "a NAME cannot be combined with --all-namespaces or --selector",
		"session watch tidy":                     `agenticsessions.yardmaster.dev "tidy" not found`,
		"session logs tidy --tail=-2":            "invalid --tail -2: must be -1 (all lines) or greater",
		"session logs tidy --since=-1m":          `invalid argument "-1m" for "--since" flag: invalid duration "-1m"`,
		"session stop":                           "requires at least 1 arg(s)",
		"session restart":                        "accepts 1 arg(s), received 0",
		"session result tidy -o table":           `invalid --output "table": must be one of text, json, yaml`,
		"session result tidy":                    `agenticsessions.yardmaster.dev "tidy" not found`,
		"session attach tidy":                    `agenticsessions.yardmaster.dev "tidy" not found`,
		"session nothing":                        `unknown command "nothing"`,
		"queue list -o xml":                      `invalid --output "xml": must be one of table, wide, json, yaml, name`,
		"queue list orders -A":                   "a NAME cannot be combined with --all-namespaces or --selector",
		"report -o text":                         `invalid --output "text": must be one of table, wide, name, json, yaml`,
		"report --fail-on healthy":               `invalid --fail-on "healthy": must be one of zombie, suspicious, never`,
		"queue suspend":                          "requires at least 1 arg(s)",
		"queue dead list mail --limit=-1":        "invalid --limit -1: must be 0 (no limit) or greater",
		"queue dead list mail -o name":           `invalid --output "name": must be one of table, json, yaml`,
		"queue dead requeue mail":                "set either --all or --oldest",
		"queue dead requeue mail --all --oldest": "flag needs an argument",
		"queue dead requeue mail --oldest=-1":    "invalid --oldest -1: must be at least 1",
		"queue dead purge mail --yes":            "set --all",
		"queue dead list mail":                   `queues.yardmaster.dev "mail" not found`,
		"pool watch mailers -A":                  "a NAME cannot be combined with --all-namespaces or --selector",
		"pool watch mailers":                     `workerpools.yardmaster.dev "mailers" not found`,
		"pool explain":                           "accepts 1 arg(s), received 0",
		"pool drain mailers --replicas=-1":       "invalid --replicas -1: must not be negative",
		"pool drain mailers --dry-run -w":        "--watch cannot be combined with --dry-run",
		"seq lst":                                `unknown command "lst" for "kubectl yardmaster seq": did you mean list?`,
		"sqe":                                    `unknown command "sqe" for "kubectl yardmaster": did you mean seq?`,
		"pool something":                         `unknown command "something" for "kubectl yardmaster pool": see kubectl yardmaster pool --help`,
		"version now":                            `unexpected argument "now": kubectl yardmaster version takes no arguments`,
		"report explain":                         `kubectl yardmaster report explain requires the name of one Job`,
		"report --no-ready-pods-zombie-after 7x": `invalid argument "7x" for "--no-ready-pods-zombie-after" flag: ` +
			`invalid duration "7x": use a value such as 90m, 12h or 7d`,
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := runPlugin(t, args, failedSequence("known"))
			require.True(t, code == exitError && out == "" && strings.HasPrefix(errOut, "error: ") && strings.Contains(errOut, want) && strings.Count(errOut, "\n") == 1,
				outcome, code, out, errOut)
		})
	}
}

func TestNoCommandOverwritesAConcurrentChange(t *testing.T) {
	for args, object := range map[string]client.Object{
		"seq rerun etl": failedSequence("etl"), "queue suspend mail": natsQueue("mail"),
		"session stop tidy": agenticSession("tidy", v1alpha1.SessionCompleted), "session restart tidy": agenticSession("tidy", v1alpha1.SessionCompleted),
	} {
		t.Run(args, func(t *testing.T) {
			changed := object.DeepCopyObject().(client.Object)
			c := interceptor.NewClient(newFakeClient(t, object), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, read client.Object, patch client.Patch, options ...client.PatchOption) error {
					if err := c.Get(ctx, client.ObjectKeyFromObject(object), changed); err != nil {
						return err
					}
					changed.SetLabels(map[string]string{"changed-by": "another"})
					if err := c.Update(ctx, changed); err != nil {
						return err
					}
					return c.Patch(ctx, read, patch, options...)
				},
			})
			code, out, errOut := runPluginWith(t, args, c)
			refusal := object.GetName() + " was changed by someone else at the same time; nothing was written"
			require.True(t, code == exitError && out == "" && strings.Contains(errOut, refusal), outcome, code, out, errOut)
			version := changed.GetResourceVersion()
			err := c.Get(t.Context(), client.ObjectKeyFromObject(object), changed)
			require.True(t, err == nil && changed.GetResourceVersion() == version, "the command wrote %+v: %v", changed, err)
		})
	}
}

func TestLists(t *testing.T) {
	team := map[string]string{"team": "data"}
	sequence, queue := failedSequence("etl"), natsQueue("mail")
	sequence.Labels, queue.Labels = team, team
	for args, row := range map[string]struct{ want, not, errOut string }{
		"seq list":                  {want: "backup"},
		"seq list -A":               {want: "a           backup   Failed"},
		"seq list -l team=data":     {want: "etl", not: "backup"},
		"seq list -o name":          {want: "sequentialjob.yardmaster.dev/backup\nsequentialjob.yardmaster.dev/etl\n", not: "NAME"},
		"seq list -o yaml":          {want: "kind: SequentialJobList"},
		"seq list -n b":             {errOut: "No SequentialJobs found in namespace b.\n"},
		"seq list -n b -o name":     {},
		"seq list -n b -o json":     {want: `"items": []`},
		"seq list --color=always":   {want: "\x1b[31mFailed\x1b[0m"},
		"seq list -A -l team=none":  {errOut: "No SequentialJobs found.\n"},
		"queue list":                {want: "NAME    STATUS    BACKLOG"},
		"queue list -l team=data":   {want: "mail", not: "video"},
		"queue list -A":             {want: "a           video   Pending"},
		"queue list -o name":        {want: "queue.yardmaster.dev/mail\nqueue.yardmaster.dev/video\n", not: "NAME"},
		"queue list -o yaml":        {want: "kind: QueueList"},
		"queue get mail -o name":    {want: "queue.yardmaster.dev/mail\n", not: "video"},
		"queue list -n b":           {errOut: "No Queues found in namespace b.\n"},
		"queue list -n b -o json":   {want: `"items": []`},
		"queue list --color=always": {want: "\x1b[2mPending\x1b[0m"},
		"pool list":                 {want: "mailers   Pending   0/0"},
		"pool list -o name":         {want: "workerpool.yardmaster.dev/mailers\n", not: "NAME"},
		"pool list -o json":         {want: `"kind": "WorkerPoolList"`},
		"pool list -A -l team=none": {errOut: "No WorkerPools found.\n"},
		"wp ls":                     {want: "mailers"},
		"session list":              {want: "tidy   Completed   -"},
		"as ls":                     {want: "NAME   STATUS"},
		"session list -A":           {want: "a           tidy   Completed"},
		"session list -o name":      {want: "agenticsession.yardmaster.dev/tidy\n"},
		"session list -o yaml":      {want: "kind: AgenticSessionList"},
		"session list -n b":         {errOut: "No AgenticSessions found in namespace b.\n"},
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := runPlugin(t, args, sequence, failedSequence("backup"), queue, natsQueue("video"), manualPool("mailers", 3),
				agenticSession("tidy", v1alpha1.SessionCompleted))
			require.True(t, code == exitSuccess && strings.Contains(out, row.want) && (row.not == "" || !strings.Contains(out, row.not)), "%d:\n%s", code, out)
			require.Equal(t, row.errOut, errOut)
		})
	}
}

func TestCreateFromArguments(t *testing.T) {
	c := newClientOf(t, "ada")
	words := []string{"seq", "create", "etl", "--image", "busybox:1.37", "--step", "extract=curl -o x example.org", "--step", "load=wc x"}
	code, _, errOut := runPluginArgs(t, words, c)
	require.True(t, code == exitSuccess, "exit code %d, stderr %q", code, errOut)
	sj := &v1alpha1.SequentialJob{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "etl"}, sj))
	require.Equal(t, "busybox:1.37", sj.Spec.Template.Spec.Containers[0].Image)
	require.True(t, len(sj.Spec.Containers) == 2 && sj.Spec.Containers[1].Name == "load" && sj.Spec.Containers[1].Command[2] == "wc x", "%+v", sj)
	prompt := filepath.Join(t.TempDir(), "prompt.md")
	require.NoError(t, os.WriteFile(prompt, []byte("Fix the failing test.\n"), 0o600))
	code, _, errOut = runPluginWith(t, "session create fix --runner small --prompt-file "+prompt, c)
	require.True(t, code == exitSuccess, "exit code %d, stderr %q", code, errOut)
	s := &v1alpha1.AgenticSession{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "fix"}, s))
	require.True(t, s.Spec.Prompt == "Fix the failing test.\n" && s.Spec.Runner == "small" && s.Spec.UserContext != nil && s.Spec.UserContext.UserID == "ada",
		"spec %+v", s.Spec)
}

func TestFilesAndStandardInputAreReadUpToALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(path, []byte("12345"), 0o600))
	for _, name := range []string{"-", path} {
		got, err := readFile(name, strings.NewReader("12345"), 5)
		require.True(t, err == nil && string(got) == "12345", "%s: %q, %v", name, got, err)
		_, err = readFile(name, strings.NewReader("12345"), 4)
		require.True(t, err != nil && strings.Contains(err.Error(), name+" has more than 4 bytes"), "%s: error %v", name, err)
	}
}

func TestErrorsAreLinesThatSayWhatToDo(t *testing.T) {
	sequences := schema.GroupResource{Group: "yardmaster.dev", Resource: "sequentialjobs"}
	refused := &url.Error{
		Op: "Get", URL: "https://10.0.0.1:6443/api?timeout=32s", Err: &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")},
	}
	noKind := func(kind string) error { return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind}} }
	for name, row := range map[string]struct {
		err  error
		want []string
	}{
		"an error of the API server":   {apierrors.NewNotFound(sequences, "x"), []string{`sequentialjobs.yardmaster.dev "x" not found`}},
		"joined errors":                {errors.Join(errors.New("one"), errors.New("two")), []string{"one", "two"}},
		"an error of several lines":    {errors.New("one\ntwo"), []string{"one two"}},
		"a kind that is not installed": {noKind("SequentialJob"), []string{notInstalledMessage}},
		"one kind that is not installed": {
			noKind("Queue"), []string{"the API server does not serve the kind Queue of yardmaster.dev: install its CustomResourceDefinition"},
		},
		"a resource that is not installed": {&meta.NoResourceMatchError{}, []string{notInstalledMessage}},
		"repeated errors":                  {errors.Join(&meta.NoResourceMatchError{}, &meta.NoResourceMatchError{}), []string{notInstalledMessage}},
		"the API server does not answer": {
			errors.Join(errors.New("failed to get server groups"), refused),
			[]string{
				"failed to get server groups",
				"cannot connect to the API server https://10.0.0.1:6443: connection refused; check the context with kubectl config current-context",
			},
		},
		"no cluster": {clientcmd.ErrEmptyConfig, []string{"no cluster is configured: set --kubeconfig, or the environment variable KUBECONFIG"}},
		"the credentials are not accepted": {
			apierrors.NewUnauthorized("token expired"),
			[]string{"the API server does not accept your credentials: log in again, or check the user of the context with kubectl config view --minify"},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, describeError(row.err)) })
	}
}

func TestWideTablesHaveTheConditionReady(t *testing.T) {
	ready := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Reconciled", Message: "very fine"}}
	queue := natsQueue("orders", func(q *v1alpha1.Queue) { q.Status.Conditions = ready })
	schedule := nightlySchedule(func(s *v1alpha1.Schedule) { s.Status.Conditions = ready })
	for _, kind := range []string{"queue", "schedule"} {
		_, out, _ := runPlugin(t, kind+" list -o wide", queue, schedule)
		lines := strings.Split(out, "\n")
		require.True(t, strings.HasSuffix(lines[0], "READY   MESSAGE") && strings.HasSuffix(lines[1], "True    very fine"), "table:\n%s", out)
	}
}

func forEachCommand(command *cobra.Command, do func(*cobra.Command)) {
	if command.Name() == "help" || command.Name() == "completion" {
		return
	}
	do(command)
	for _, child := range command.Commands() {
		forEachCommand(child, do)
	}
}

func newTestRoot() *cobra.Command {
	return newRootCommand(&environment{out: &bytes.Buffer{}, errOut: &bytes.Buffer{}})
}

// isLeaf reports whether the command does something, other than group others.
func isLeaf(command *cobra.Command) bool {
	return !command.HasSubCommands() || command.Name() == "report"
}

func TestEachCommandHasExamplesThatAreValid(t *testing.T) {
	root := newTestRoot()
	forEachCommand(root, func(command *cobra.Command) {
		if !isLeaf(command) {
			return
		}
		require.True(t, command.Example != "", "%s has no example", command.CommandPath())
		for line := range strings.SplitSeq(command.Example, "\n") {
			example, isCommand := strings.CutPrefix(strings.TrimSpace(line), "kubectl yardmaster ")
			if !isCommand {
				continue
			}
			fresh := newTestRoot()
			found, rest, err := fresh.Find(strings.Fields(example))
			if err != nil || found.CommandPath() != command.CommandPath() {
				t.Errorf("%s: the example %q is of another command: %v", command.CommandPath(), example, err)
				continue
			}
			err = found.ParseFlags(rest)
			require.True(t, err == nil, "%s: the example %q is invalid: %v", command.CommandPath(), example, err)
			err = found.ValidateArgs(found.Flags().Args())
			require.True(t, err == nil, "%s: the example %q is invalid: %v", command.CommandPath(), example, err)
		}
	})
	for path := range examples {
		found, rest, err := root.Find(strings.Fields(path))
		require.True(t, err == nil && len(rest) == 0, "there are examples of %s, which is no command: found %s, %v", path, found.CommandPath(), err)
	}
}

func TestHelpHidesTheConnectionFlags(t *testing.T) {
	for _, args := range []string{"--help", "report --help", "seq --help", "seq list --help", "queue dead list --help"} {
		_, out, _ := runPlugin(t, args)
		require.True(t, !strings.Contains(out, "--kubeconfig") && !strings.Contains(out, "--client-key"), "%s shows connection flags:\n%s", args, out)
		require.True(t, strings.Contains(out, globalFlagsHint) && strings.Contains(out, "Usage:"), "%s lacks the usage or the hint:\n%s", args, out)
	}
	_, out, _ := runPlugin(t, "options")
	require.True(t, strings.Contains(out, "--kubeconfig") && strings.Contains(out, "-n, --namespace"), "options:\n%s", out)
}

func TestEveryFlagAndArgumentCompletes(t *testing.T) {
	forEachCommand(newTestRoot(), func(command *cobra.Command) {
		check := func(flag *pflag.Flag) {
			_, completes := command.GetFlagCompletionFunc(flag.Name)
			isFile := flag.Annotations[cobra.BashCompFilenameExt] != nil
			for _, name := range fileFlags {
				isFile = isFile || name == flag.Name
			}
			require.True(t, completes || isFile || flag.Name == "help", "%s --%s completes names of files", command.CommandPath(), flag.Name)
		}
		command.LocalFlags().VisitAll(check)
		command.InheritedFlags().VisitAll(check)
		require.True(t, !isLeaf(command) || command.ValidArgsFunction != nil, "%s completes names of files", command.CommandPath())
	})
}

func TestCompletion(t *testing.T) {
	objects := append([]client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}}, staleTestJobs...)
	objects = append(objects, failedSequence("etl"), failedSequence("backup"), natsQueue("mail"), natsQueue("video"), manualPool("mailers", 1),
		agenticSession("tidy", v1alpha1.SessionCompleted))
	for args, want := range map[string]string{
		"report -n ":                    "c\nteam-a\n:4",
		"seq watch ":                    "backup\tFailed\netl\tFailed\n:4",
		"seq watch etl ":                ":4",
		"seq suspend etl ":              "backup\tFailed\n:4",
		"seq watch -n b ":               ":4",
		"seq rerun etl --from ":         "Failed\nStart\nextract\nload\n:4",
		"seq rerun no-such-one --from ": "Failed\nStart\n:4",
		"seq logs etl --step ":          "extract\nload\n:4",
		"queue suspend mail ":           "video\n:4",
		"queue dead list ":              "mail\nvideo\n:4",
		"queue dead list mail ":         ":4",
		"pool explain ":                 "mailers\n:4",
		"pool watch mailers ":           ":4",
		"session stop ":                 "tidy\tCompleted\n:4",
		"report --context ":             "c\n:4",
		"report --cluster ":             "c\n:4",
		"report --color ":               "auto\nalways\nnever\n:36",
		"report -o ":                    "table\nwide\nname\njson\nyaml\n:36",
		"report --fail-on ":             "zombie\nsuspicious\nnever\n:36",
		"report --top ":                 ":4",
		"report explain ":               "dead\tZombie\nnew\tHealthy\nslow\tSuspicious\n:4",
		"report explain dead ":          ":4",
		"version ":                      ":4",
		"session result -o ":            "text\njson\nyaml\n:36",
		"queue dead list x -o ":         "table\njson\nyaml\n:36",
	} {
		t.Run(args, func(t *testing.T) {
			words := append([]string{cobra.ShellCompRequestCmd}, strings.Split(args, " ")...)
			_, out, _ := runPluginArgs(t, words, newFakeClient(t, objects...))
			require.Equal(t, want, strings.TrimSpace(out))
		})
	}
}

func runDoctor(t *testing.T, args string, objects ...client.Object) (code int, out, errOut string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", testTime.Format(http.TimeFormat))
	}))
	t.Cleanup(server.Close)
	var stdout, stderr bytes.Buffer
	code = runCommand(t.Context(), append([]string{"doctor"}, strings.Fields(args)...), &environment{
		out: &stdout, errOut: &stderr, now: func() time.Time { return testTime },
		connect: func(clientcmd.ClientConfig) (*clusterConnection, error) {
			return &clusterConnection{WithWatch: newFakeClient(t, objects...), restConfig: &rest.Config{Host: server.URL}, namespace: "platform"}, nil
		},
	})
	return code, stdout.String(), stderr.String()
}

func operatorDeployment(replicas, ready int32) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Namespace, d.Name, d.Labels = "platform", operatorName, map[string]string{"app.kubernetes.io/name": operatorName, "helm.sh/chart": "yardmaster-0.1.0"}
	d.Spec.Replicas, d.Status.ReadyReplicas = &replicas, ready
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: operatorName, Image: "registry.example/yardmaster:v1", Args: []string{"--controllers=*,-workerpool"},
		Env: []corev1.EnvVar{{Name: "YARDMASTER_NAMESPACES", Value: "team-a"}, {Name: "YARDMASTER_CONTROLLERS", Value: "queue"}, {Name: "YARDMASTER_CONCURRENCY", Value: "8"}, {Name: "YARDMASTER_BROKER_URL_SECRET", Value: "yardmaster-broker"}},
	}}
	return d
}

func TestDoctorPrintsTheFixBelowEachFinding(t *testing.T) {
	code, out, errOut := runDoctor(t, "-n platform", operatorDeployment(3, 1))
	require.True(t, code == exitUnsuccessful && errOut == "", "exit code %d, stderr %q", code, errOut)
	want := `CHECK                STATUS    REASON
operator             WARNING   1 of 3 replicas are ready
  fix: kubectl describe pods --namespace platform --selector app.kubernetes.io/name=yardmaster,app.kubernetes.io/component=operator
leader               FAILED    no replica has ever led: the Lease platform/yardmaster.yardmaster.dev does not exist
  fix: kubectl rollout restart deployment yardmaster --namespace platform
definitions          FAILED    the CustomResourceDefinition agenticsessions.yardmaster.dev does not exist
  fix: make install deploy IMG=registry.example/yardmaster:v1 NAMESPACES='team-a' OPERATOR_NAMESPACE=platform CONTROLLERS='*,-workerpool' REPLICAS=3 COMPONENTS=default-broker SETTINGS='YARDMASTER_CONCURRENCY=8'
`
	lines := strings.SplitAfter(out, "\n")
	require.True(t, cmp.Diff(want, strings.Join(lines[:7], "")) == "", "output:\n%s", out)
}

func TestDoctorRestoresReleasesOfTheChartWithHelm(t *testing.T) {
	deployment := operatorDeployment(2, 2)
	deployment.Annotations = map[string]string{"meta.helm.sh/release-name": "yard", "meta.helm.sh/release-namespace": "platform"}
	_, out, _ := runDoctor(t, "", deployment)
	want := "fix: helm upgrade yard oci://ghcr.io/yardmaster/charts/yardmaster --version 0.1.0 --namespace platform --reuse-values\n"
	require.True(t, strings.Contains(out, want), "output:\n%s", out)
}

func TestDifference(t *testing.T) {
	want := map[string]any{"a": "x  y", "list": []any{map[string]any{"b": int64(1)}}}
	for title, row := range map[string]struct {
		got  any
		want string
	}{
		"equal, with defaults":     {map[string]any{"a": "x\n y", "list": []any{map[string]any{"b": int64(1), "scope": "*"}}, "selector": map[string]any{}}, ""},
		"another value":            {map[string]any{"a": "x z", "list": []any{map[string]any{"b": int64(1)}}}, "spec.a"},
		"another value in a list":  {map[string]any{"a": "x y", "list": []any{map[string]any{"b": int64(2)}}}, "spec.list[0].b"},
		"a longer list":            {map[string]any{"a": "x y", "list": []any{map[string]any{"b": int64(1)}, "c"}}, "spec.list"},
		"a value that is missing":  {map[string]any{"a": "x y"}, "spec.list"},
		"a value that is too much": {map[string]any{"a": "x y", "list": []any{map[string]any{"b": int64(1)}}, "except": "team-a"}, "spec.except"},
		"nothing":                  {nil, "spec"},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, difference("spec", want, row.got)) })
	}
}

func TestDoctorAsksForTheQuotaThatTheDocumentationRecommends(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	require.NoError(t, err)
	require.True(t, strings.Contains(strings.ReplaceAll(string(page), "\\\n", ""), "--hard="+RecommendedQuota+"\n"), "docs/security.md lacks the quota")
}
