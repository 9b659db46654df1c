package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newOptionsCommand is `kubectl yardmaster options`.
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

// printUsage prints the usage of a command. Other than cobra, it replaces the twenty flags that select
// a cluster by a hint, as kubectl does. They are not marked as hidden, so that shells complete their
// names. A template would link the package text/template, with which the linker keeps more code.
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
		sections = append(sections, "Commands:\n"+strings.Join(describeSubcommands(command), "\n"))
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

func describeSubcommands(command *cobra.Command) []string {
	var rows [][]string
	for _, child := range command.Commands() {
		if child.IsAvailableCommand() {
			rows = append(rows, []string{"  " + child.Name(), child.Short})
		}
	}
	return terminal.AlignColumns(rows)
}

// examples of each command, by its path without kubectl yardmaster. A line without # is a command.
var examples = map[string]string{
	"report": `# Stale Jobs of the current namespace
report
# One line for the failed runs of each CronJob, in all namespaces
report -A --group-by owner
# In a pipeline, fail if any Job needs attention
report -n team-a --fail-on suspicious -o json
# What the operator stored, and nothing else
report --from-cluster`,
	"report explain": `# Why the Job train makes no progress
report explain train -n team-a`,

	"seq list": `# SequentialJobs of the current namespace
seq list
# Those of a team in all namespaces, with the condition Ready
seq list -A -l team=data -o wide`,
	"seq create": `# A sequence of two steps
seq create etl --image busybox:1.37 --step extract=./extract --step load=./load`,
	"queue send": `# A job with a text as its payload
queue send orders --data '{"order":7}'
# A file, which a worker may start in five minutes, once only
queue send orders -f order.json --kind invoice --id order-7 --delay 5m`,
	"schedule list": `# Schedules of all namespaces
schedule list -A`,
	"schedule next": `# The next ten times of nightly
schedule next nightly --count 10`,
	"schedule trigger": `# Start a run now
schedule trigger nightly`,
	"schedule suspend": `# Suspend it during a migration
schedule suspend nightly`,
	"schedule resume": `# Resume it
schedule resume nightly`,
	"session create": `# With a prompt from a file
session create fix-tests --prompt-file prompt.md`,
	"seq watch": `# Watch until the run of etl finishes
seq watch etl
# Watch all, and exit when all runs have finished
seq watch --until-finished`,
	"seq logs": `# Follow the logs of all steps
seq logs etl -f
# The end of the log of one step
seq logs etl --step load --tail 20`,
	"seq rerun": `# Rerun from the failed step, and watch
seq rerun etl --watch
# Rerun from a step
seq rerun etl --from transform`,
	"seq approve": `# Approve the step that deploy waits with, if it is step apply
seq approve deploy --step apply`,
	"seq suspend": `# Suspend two SequentialJobs
seq suspend etl report`,
	"seq resume": `# Resume it
seq resume etl`,

	"queue list": `# Queues with their message counts
queue list`,
	"queue pause": `# Workers receive no more messages
queue pause orders`,
	"queue resume": `# Workers receive messages again
queue resume orders`,
	"queue jobs": `# Jobs that have failed for good, of a queue with spec.results
queue jobs orders --state dead`,
	"queue job": `# State, attempts, progress and result of a job
queue job orders order-7`,
	"queue cancel": `# Also while it runs
queue cancel orders order-7`,
	"queue dead show": `# A dead letter with its headers and payload
queue dead show orders 17`,
	"queue dead edit": `# Change the payload in an editor, and requeue the job
queue dead edit orders 17`,
	"queue dead list": `# The oldest dead letters, with their payload
queue dead list orders -o yaml`,
	"queue dead requeue": `# Requeue the ten oldest dead letters
queue dead requeue orders --oldest 10`,
	"queue dead delete": `# Delete two dead letters, or all with a text in their error
queue dead delete orders 17 23
queue dead delete orders --filter "no such customer"`,
	"queue dead purge": `# Delete all dead letters
queue dead purge orders --all`,

	"pool list": `# WorkerPools in all namespaces
pool list -A`,
	"pool watch": `# Watch the backlog and workers
pool watch resizers`,
	"pool explain": `# Why the pool has this number of workers
pool explain resizers`,
	"pool drain": `# Drain all workers, and wait
pool drain resizers --watch

# Drain one worker, which the pool replaces
pool drain resizers resizers-5c9f7d-x2k4p`,
	"pool workers": `# The workers with their states and nodes
pool workers resizers`,
	"pool restart": `# Replace all workers, and wait
pool restart resizers --watch`,
	"pool pause-scaling": `# Keep the number of workers for two hours
pool pause-scaling resizers --for 2h`,
	"pool resume-scaling": `# Let the autoscaler change it again
pool resume-scaling resizers`,

	"session list": `# Sessions with the time and cost they have used
session list`,
	"session watch": `# Watch until the session finishes
session watch fix-tests`,
	"session attach": `# Talk to the agent of an interactive session, line by line
session attach pair`,
	"session logs": `# Follow the log of the runner
session logs fix-tests -f`,
	"session result": `# The latest result, for programs
session result fix-tests -o json`,
	"session stop": `# Stop it; restart continues its run
session stop fix-tests`,
	"session restart": `# Restart it, and watch
session restart fix-tests --watch`,

	"ui": `# Show the objects of the current namespace in a browser
ui
# Those of all namespaces; open the printed address yourself
ui -A --no-browser`,

	"options": `# The flags that select a cluster and a namespace
options`,
	"version": `# The version of the plugin
version`,
}

// addExamples adds the examples to a command and those below it.
func addExamples(command *cobra.Command) {
	path := strings.Fields(strings.TrimPrefix(command.CommandPath(), command.Root().CommandPath()))
	if text := examples[strings.Join(path, " ")]; text != "" {
		var lines []string
		for line := range strings.SplitSeq(text, "\n") {
			if !strings.HasPrefix(line, "#") {
				line = "kubectl yardmaster " + line
			}
			lines = append(lines, "  "+line)
		}
		command.Example = strings.Join(lines, "\n")
	}
	for _, child := range command.Commands() {
		addExamples(child)
	}
}
