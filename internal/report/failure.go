package report

import (
	"slices"
	"strings"
	"unicode"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// ScanFailure is why something about a report did not come about.
type ScanFailure struct {
	// Reason of the condition that tells.
	Reason string
	// Message for people.
	Message string
}

// stableMessage is the one for the condition: that which stands there, if it says the same. An
// error's text may have a port or a time in it that is another with each try, and each
// would be a write.
func (f ScanFailure) stableMessage(before *v1alpha1.JobReportStatus, kind string) string {
	message := zombie.TruncateText(f.Message, zombie.MaxMessageBytes)
	if was := conditionOrEmpty(before, kind); was.Reason == f.Reason && slices.Equal(wordsWithoutDigits(was.Message), wordsWithoutDigits(message)) {
		return was.Message
	}
	return message
}

// wordsWithoutDigits are those of a text that no digit is in.
func wordsWithoutDigits(text string) []string {
	all := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return slices.DeleteFunc(all, func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
}
