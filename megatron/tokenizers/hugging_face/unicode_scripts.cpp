#include "megatron/tokenizers/hugging_face/unicode_scripts.h"

#include <string_view>

namespace megatron::hugging_face {
namespace {
// The scripts of Unicode 9, which tokenizers 0.23 knows. Han is apart, with the Japanese syllabaries.
constexpr std::string_view kScripts =
    "Adlam Ahom AnatolianHieroglyphs Arabic Armenian Avestan Balinese Bamum BassaVah Batak Bengali Bhaiksuki Bopomofo "
    "Brahmi Braille Buginese Buhid CanadianAboriginal Carian CaucasianAlbanian Chakma Cham Cherokee Common Coptic "
    "Cuneiform Cypriot Cyrillic Deseret Devanagari Duployan EgyptianHieroglyphs Elbasan Ethiopic Georgian Glagolitic "
    "Gothic Grantha Greek Gujarati Gurmukhi Hangul Hanunoo Hatran Hebrew ImperialAramaic Inherited "
    "InscriptionalPahlavi InscriptionalParthian Javanese Kaithi Kannada KayahLi Kharoshthi Khmer Khojki Khudawadi Lao "
    "Latin Lepcha Limbu LinearA LinearB Lisu Lycian Lydian Mahajani Malayalam Mandaic Manichaean Marchen MeeteiMayek "
    "MendeKikakui MeroiticCursive MeroiticHieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean NewTaiLue Newa "
    "Nko Ogham OlChiki OldHungarian OldItalic OldNorthArabian OldPermic OldPersian OldSouthArabian OldTurkic Oriya "
    "Osage Osmanya PahawhHmong Palmyrene PauCinHau PhagsPa Phoenician PsalterPahlavi Rejang Runic Samaritan Saurashtra "
    "Sharada Shavian Siddham SignWriting Sinhala SoraSompeng Sundanese SylotiNagri Syriac Tagalog Tagbanwa TaiLe "
    "TaiTham TaiViet Takri Tamil Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic Vai WarangCiti Yi ";
}  // namespace

std::string script_runs_pattern() {
  const std::string han = R"([\p{sc:Han}\p{sc:Hiragana}\p{sc:Katakana}\x{30FC}])";
  std::string known = han, runs = "(?:" + han + "(?&none)*+)++";
  for (size_t begin = 0; begin < kScripts.size();) {
    const size_t end = kScripts.find(' ', begin);
    const std::string script = "\\p{sc:" + std::string(kScripts.substr(begin, end - begin)) + "}";
    runs += R"(|(?:(?![ \x{30FC}]))" + script + "(?&none)*+)++";  // both characters are of the script Common
    known += "|" + script;
    begin = end + 1;
  }
  return "(?(DEFINE)(?<none>[ ]|(?!" + known + ")(?s:.)))(?:" + runs + ")";
}

}  // namespace megatron::hugging_face
