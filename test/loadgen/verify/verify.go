// Package verify determines from a ledger which jobs were lost and which were done repeatedly.
package verify

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// LedgerResult is what a ledger shows about the jobs that were sent.
type LedgerResult struct {
	// Sent is the number of jobs, and Done the number of them with a line in the ledger.
	Sent, Done int
	// Repeated is the number of lines beyond the first one of each job.
	Repeated int
	// Repetitions are those lines.
	Repetitions []string
	// Unsuccessful is the number of attempts by their outcome, other than done.
	Unsuccessful map[string]int
	// Lost are jobs without a line, and Unexpected are names in the ledger that were not sent. Each list has maxListedNames at most.
	Lost, Unexpected []string
	// Workers is the number of Pods that wrote lines, and Revisions the number of their revisions.
	Workers, Revisions int
}

// maxListedNames bounds the lists of a LedgerResult.
const maxListedNames = 10

// JobName returns the name of a job. All names of one run have the same prefix.
func JobName(prefix string, number int) string { return fmt.Sprintf("%s-%06d", prefix, number) }

// CheckLedger reads the ledger of a run with the given number of jobs. It ignores lines of other runs.
func CheckLedger(ledger io.Reader, prefix string, sent int) (LedgerResult, error) {
	result := LedgerResult{Sent: sent, Unsuccessful: map[string]int{}}
	lines, workers, revisions := map[string]int{}, map[string]bool{}, map[string]bool{}
	scanner := bufio.NewScanner(ledger)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) == 0 || !strings.HasPrefix(fields[0], prefix+"-") {
			continue
		}
		if len(fields) > 4 && fields[4] != "done" {
			result.Unsuccessful[fields[4]]++
			continue
		}
		lines[fields[0]]++
		if lines[fields[0]] > 1 && len(result.Repetitions) < maxListedNames {
			result.Repetitions = append(result.Repetitions, scanner.Text())
		}
		if len(fields) > 1 {
			workers[fields[1]] = true
		}
		if len(fields) > 2 {
			revisions[fields[2]] = true
		}
	}
	if err := scanner.Err(); err != nil {
		return LedgerResult{}, fmt.Errorf("reading the ledger: %w", err)
	}
	result.Workers, result.Revisions = len(workers), len(revisions)
	for number := range sent {
		name := JobName(prefix, number)
		count := lines[name]
		delete(lines, name)
		switch {
		case count > 0:
			result.Done++
			result.Repeated += count - 1
		case len(result.Lost) < maxListedNames:
			result.Lost = append(result.Lost, name)
		}
	}
	unexpected := slices.Sorted(maps.Keys(lines))
	result.Unexpected = unexpected[:min(len(unexpected), maxListedNames)]
	return result, nil
}

// EachDoneOnce reports whether each job was done once.
func (result *LedgerResult) EachDoneOnce() bool {
	return result.Done == result.Sent && result.Repeated == 0 && len(result.Unexpected) == 0
}

// String describes the result in one sentence.
func (result *LedgerResult) String() string {
	return fmt.Sprintf("%d jobs sent, %d done, %d lost, %d repeated, unsuccessful attempts %v, by %d workers of %d revisions",
		result.Sent, result.Done, result.Sent-result.Done, result.Repeated, result.Unsuccessful, result.Workers, result.Revisions)
}
