// Package book judges a ledger: which jobs were lost, and which were done more than once.
package verify

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// LedgerResult is what a ledger says of the jobs that were sent.
type LedgerResult struct {
	// Sent is how many jobs there were, Done how many of them have a line.
	Sent, Done int
	// Repeated is how many lines there are beyond one for each job.
	Repeated int
	// Lost are jobs without a line, Strange lines of no job that was sent: some of each.
	Lost, Unexpected []string
	// Workers is how many Pods have written, Revisions of how many revisions.
	Workers, Revisions int
}

// maxListedNames is how many names a verdict has of a sort.
const maxListedNames = 10

// JobName of a job: those of one run begin with the same prefix.
func JobName(prefix string, number int) string { return fmt.Sprintf("%s-%06d", prefix, number) }

// VerifyLedger reads a ledger of a run with so many jobs. Lines of other runs are not looked at.
func VerifyLedger(ledger io.Reader, prefix string, sent int) (LedgerResult, error) {
	lines, workers, revisions := map[string]int{}, map[string]bool{}, map[string]bool{}
	scanner := bufio.NewScanner(ledger)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) == 0 || !strings.HasPrefix(fields[0], prefix+"-") {
			continue
		}
		lines[fields[0]]++
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
	v := LedgerResult{Sent: sent, Workers: len(workers), Revisions: len(revisions)}
	for number := range sent {
		name := JobName(prefix, number)
		count := lines[name]
		delete(lines, name)
		switch {
		case count > 0:
			v.Done++
			v.Repeated += count - 1
		case len(v.Lost) < maxListedNames:
			v.Lost = append(v.Lost, name)
		}
	}
	strange := slices.Sorted(maps.Keys(lines))
	v.Unexpected = strange[:min(len(strange), maxListedNames)]
	return v, nil
}

// EachDoneOnce reports whether each job was done once.
func (v *LedgerResult) EachDoneOnce() bool {
	return v.Done == v.Sent && v.Repeated == 0 && len(v.Unexpected) == 0
}

// String is the verdict in a sentence.
func (v *LedgerResult) String() string {
	return fmt.Sprintf("%d jobs sent, %d done, %d lost, %d done again, by %d workers of %d revisions",
		v.Sent, v.Done, v.Sent-v.Done, v.Repeated, v.Workers, v.Revisions)
}
