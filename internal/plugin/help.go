package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

func newOptionsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:               "options",
		Short:             "List the flags that apply to all commands",
		Args:              rejectArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			fmt.Fprint(env.out, "These flags apply to all commands:\n\n"+command.Root().PersistentFlags().FlagUsages()+"\n")
			return nil
		},
	}
}

const globalFlagsHint = `Use "kubectl yardmaster options" for the flags that apply to all commands.`

// printUsage prints the usage of a command. Unlike cobra, it replaces the twenty flags that select a cluster by a hint, as kubectl
// does. They are not marked as hidden, so that shells complete their names. A template would link the package text/template, with
// which the linker keeps more code.
func printUsage(command *cobra.Command) error {
	usage := command.UseLine()
	if command.HasAvailableSubCommands() {
		usage = command.CommandPath() + " COMMAND"
	}
	sections := []string{"Usage:\n  " + usage}
	if len(command.Aliases) > 0 {
		sections = append(sections, "Aliases:\n  "+command.NameAndAliases())
	}
	if command.HasExample() {
		sections = append(sections, "Examples:\n"+command.Example)
	}
	if command.HasAvailableSubCommands() {
		var rows [][]string
		for _, child := range command.Commands() {
			if child.IsAvailableCommand() {
				rows = append(rows, []string{"  " + child.Name(), child.Short})
			}
		}
		sections = append(sections, "Commands:\n"+strings.Join(terminal.AlignColumns(rows), "\n"))
	}
	if command.HasParent() && command.HasAvailableLocalFlags() {
		sections = append(sections, "Flags:\n"+strings.TrimRight(command.LocalFlags().FlagUsages(), " \n"))
	}
	if command.HasAvailableSubCommands() {
		sections = append(sections, fmt.Sprintf("Use %q for more information about a command.", command.CommandPath()+" COMMAND --help"))
	}
	fmt.Fprint(command.OutOrStdout(), strings.Join(append(sections, globalFlagsHint), "\n\n")+"\n")
	return nil
}

// examples are the arguments of each command, by its path without kubectl yardmaster. A line with # is a comment.
var examples = map[string]string{
	"report": `# Stale Jobs of the current namespace

# One line for the failed runs of each CronJob, in all namespaces
-A --group-by owner
# In a pipeline, fail if any Job needs attention
-n team-a --fail-on suspicious -o json
# What the operator stored, and nothing else
--from-cluster`,
	"report explain": "train -n team-a",

	"seq list": `# SequentialJobs of the current namespace

# Those of a team in all namespaces, with the condition Ready
-A -l team=data -o wide`,
	"seq create": "etl --image busybox:1.37 --step extract=./extract --step load=./load",
	"seq watch": `# Watch until the run of etl finishes
etl
# Watch all, and exit when all runs have finished
--until-finished`,
	"seq logs": `# Follow the logs of all steps
etl -f
# The end of the log of one step
etl --step load --tail 20`,
	"seq rerun": `# Rerun from the failed step, and watch
etl --watch
# Rerun from a step
etl --from transform`,
	"seq approve": `# Approve the step that deploy waits with, if it is step apply
deploy --step apply`,
	"seq describe": "etl",
	"seq suspend":  "etl report",
	"seq resume":   "etl",

	"queue list":    "",
	"queue suspend": "orders",
	"queue resume":  "orders",
	"queue send": `# A job with a text as its payload
orders --data '{"order":7}'
# A file, which a worker may start in five minutes, once only
orders -f order.json --kind invoice --id order-7 --delay 5m`,
	"queue jobs": `# Jobs that have failed for good, of a queue with spec.results
orders --state dead`,
	"queue job":       "orders order-7",
	"queue cancel":    "orders order-7",
	"queue dead list": "orders --filter timeout",
	"queue dead show": "orders 17",
	"queue dead edit": "orders 17",
	"queue dead requeue": `# Requeue the ten oldest dead letters
orders --oldest 10`,
	"queue dead delete": `# Delete two dead letters, or all with a text in their error
orders 17 23
orders --filter "no such customer"`,
	"queue dead purge": "orders --all",

	"pool list":    "-A",
	"pool watch":   "resizers",
	"pool explain": "resizers",
	"pool workers": "resizers",
	"pool drain": `# Drain all workers, and wait
resizers --watch
# Drain one worker, which the pool replaces
resizers resizers-5c9f7d-x2k4p`,
	"pool restart":         "resizers --watch",
	"pool suspend-scaling": "resizers",
	"pool resume-scaling":  "resizers",

	"schedule list": "-A",
	"schedule next": "nightly --count 10",
	"schedule runs": "nightly",
	"schedule trigger": `# A run of this moment
nightly
# The run of yesterday night once more, in the time zone of the Schedule
nightly --at 2026-03-01T02:30`,
	"schedule backfill": `# Which times are these?
nightly --from 2026-02-01 --to 2026-02-15 --dry-run
# Run them
nightly --from 2026-02-01 --to 2026-02-15`,
	"schedule cancel":  "nightly",
	"schedule suspend": "nightly",
	"schedule resume":  "nightly",

	"session list":     "",
	"session create":   "fix-tests --prompt-file prompt.md",
	"session watch":    "fix-tests",
	"session attach":   "pair",
	"session describe": "fix-tests",
	"session logs":     "fix-tests -f",
	"session result":   "fix-tests -o json",
	"session stop":     "fix-tests",
	"session restart":  "fix-tests --watch",

	"ui": `# Show the objects of the current namespace in a browser

# Those of all namespaces; open the printed address yourself
-A --no-browser`,
	"doctor": `# Check the installation, with your permissions

# One in another namespace, for a pipeline
-n platform -o json`,
	"options": "",
	"version": "",
	"webhook-ca": `# After kubectl apply, once

# Replace the certificate authority, and after two minutes trust only the new one
--renew`,
}

func addExamples(command *cobra.Command) {
	path := strings.TrimPrefix(command.CommandPath(), command.Root().CommandPath()+" ")
	if text, exist := examples[path]; exist {
		var lines []string
		for line := range strings.SplitSeq(text, "\n") {
			if !strings.HasPrefix(line, "#") {
				line = strings.TrimSpace(command.CommandPath() + " " + line)
			}
			lines = append(lines, "  "+line)
		}
		command.Example = strings.Join(lines, "\n")
	}
	for _, child := range command.Commands() {
		addExamples(child)
	}
}
