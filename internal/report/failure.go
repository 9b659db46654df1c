package report

import (
	"slices"
	"strings"
	"unicode"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// Failure explains why a scan or an export failed.
type Failure struct {
	// Reason of the condition.
	Reason string
	// Message of the condition.
	Message string
}

// stableMessage returns the condition's present message if it differs only in numbers. An error
// may contain a port or a time that differs for each attempt, and each would cause a write.
func (f *Failure) stableMessage(before *v1alpha1.JobReportStatus, kind string) string {
	message := zombie.TruncateText(f.Message, zombie.MaxMessageBytes)
	if was := conditionOrEmpty(before, kind); was.Reason == f.Reason && slices.Equal(wordsWithoutDigits(was.Message), wordsWithoutDigits(message)) {
		return was.Message
	}
	return message
}

func wordsWithoutDigits(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return slices.DeleteFunc(words, func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
}
