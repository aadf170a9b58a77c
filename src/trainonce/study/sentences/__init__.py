"""A summary in words: the sentence with the result, the evidence for it, and the table."""

from trainonce.study.sentences.evidence import details as details
from trainonce.study.sentences.evidence import evidence as evidence
from trainonce.study.sentences.headline import sentence as sentence
from trainonce.study.sentences.names import missing_seeds as missing_seeds
from trainonce.study.sentences.names import rule_name as rule_name
from trainonce.study.sentences.numbers import amount as amount
from trainonce.study.sentences.numbers import decimal_places as decimal_places
from trainonce.study.sentences.numbers import interval as interval
from trainonce.study.sentences.numbers import mean_and_deviation as mean_and_deviation
from trainonce.study.sentences.numbers import number as number
from trainonce.study.sentences.numbers import times as times
from trainonce.study.sentences.table import name_ratios as name_ratios
from trainonce.study.sentences.table import notes as notes
from trainonce.study.sentences.table import notices as notices
from trainonce.study.sentences.table import ratios_cell as ratios_cell
from trainonce.study.sentences.table import ratios_line as ratios_line
from trainonce.study.sentences.table import table as table
from trainonce.study.sentences.table import text_table as text_table
from trainonce.study.sentences.table import warning_kind as warning_kind
