package plugin

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

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
			code, out, errOut := runPlugin(t, args)
			if code != exitError || out != "" || !strings.HasPrefix(errOut, "error: ") || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
			}
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
			if code != exitError || out != "" || !strings.Contains(errOut, object.GetName()+" was changed by someone else at the same time; nothing was written") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
			}
			version := changed.GetResourceVersion()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), changed); err != nil || changed.GetResourceVersion() != version {
				t.Errorf("the command wrote %+v: %v", changed, err)
			}
		})
	}
}

func TestLists(t *testing.T) {
	team := map[string]string{"team": "data"}
	sequence, queue := failedSequence("etl"), natsQueue("mail")
	sequence.Labels, queue.Labels = team, team
	for args, row := range map[string]struct{ want, not, errOut string }{
		"seq list":                  {want: "backup"},
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
			if code != exitSuccess || !strings.Contains(out, row.want) || row.not != "" && strings.Contains(out, row.not) {
				t.Errorf("exit code %d:\n%s", code, out)
			}
			require.Equal(t, row.errOut, errOut)
		})
	}
}
