package plugin

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// forEachCommand calls do for each command that users can run.
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
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: the example %q is invalid: %v", command.CommandPath(), example, err)
			}
			if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%s: the example %q is invalid: %v", command.CommandPath(), example, err)
			}
		}
	})
	for path := range examples {
		if found, rest, err := root.Find(strings.Fields(path)); err != nil || len(rest) > 0 {
			t.Errorf("there are examples of %s, which is no command: found %s, %v", path, found.CommandPath(), err)
		}
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
